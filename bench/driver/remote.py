"""Remote providers, by the tests' stub: how fast documents go through it, what the gateway needs, how true a rate is."""

import re
import subprocess
import time
from statistics import median

from psycopg.types.json import Jsonb

import ingest
from report import Report
from server import Server, memory_kb, put_documents
from texts import Writer

LATENCY_MS, BATCH, CONCURRENCY = 50, 96, 8
DIMENSION = 384
# A paragraph each, whatever an embedder takes for a token.
CHUNKING = {"strategy": "recursive", "unit": "characters", "size": 900, "overlap": 0}
RPM, RPM_SECONDS = 600, 65
# Documents of one chunk each, of so many words; the part of a batch that must be full of them; and the latency of a provider that
# gives less than the worker could write.
SHORT_ONES, WORDS, FULL, SLOW_MS = 20_000, 40, 0.9, 200
EDITS = 40


class Stub:
    """The stub provider as a process of its own."""

    def __init__(self, server: Server, **options):
        arguments = [item for name, value in options.items() for item in (f"--{name.replace('_', '-')}", str(value))]
        self.process = subprocess.Popen(
            [server.options.stub, "--dimension", str(DIMENSION), *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        self.url = "http://" + self.process.stdout.readline().split()[-1]

    def stop(self) -> dict[str, int]:
        """What it saw: requests, at most at one time, most in a minute, complaints."""
        _, said = self.process.communicate(timeout=30)
        requests, at_once, in_a_minute, complaints = map(int, re.findall(r"\d+", said)[:4])
        if complaints:
            raise AssertionError(f"the stub complains: {said}")
        return {"requests": requests, "at once": at_once, "in a minute": in_a_minute}


def create(connection, stub: Stub, **config) -> None:
    config = {"batch_size": BATCH, "max_concurrency": CONCURRENCY, "encoding_format": "base64"} | config
    connection.execute(
        "SELECT kb.create_embedder('stub', 'openai', 'model', %s, %s, config => %s)",
        [DIMENSION, f"{stub.url}/openai/v1", Jsonb(config)],
    )


def seconds_to_ready(connection, given: list[dict]) -> float:
    begun = time.perf_counter()
    put_documents(connection, "bench", given, ingest.BATCH, 500)
    took = time.perf_counter() - begun
    vectors = connection.execute("SELECT vectors FROM kb.status WHERE kb_id = 'bench'").fetchone()[0]
    if vectors != len(given) * ingest.CHUNKS_EACH:
        raise AssertionError(f"{vectors} vectors")
    return took


def knowledge_base(connection, embedder: str, chunking: dict) -> None:
    # No index: building it takes the same time, whichever provider made the vectors.
    connection.execute(
        "SELECT kb.create_vector_db('exact', dimension => %s, config => %s)", [DIMENSION, Jsonb({"min_rows": 10**8})]
    )
    connection.execute(
        "SELECT kb.create_knowledge_base('bench', %s, 'exact', chunking => %s)", [embedder, Jsonb(chunking)]
    )


def run(server: Server, report: Report) -> None:
    throughput(server, report)
    short_ones(server, report, LATENCY_MS)
    short_ones(server, report, SLOW_MS)
    edits(server, report)


def throughput(server: Server, report: Report) -> None:
    given = ingest.documents()
    stub = Stub(server, latency_ms=LATENCY_MS)
    took = {}
    connection = None
    for round in range(2):
        for embedder in ("hash", "stub"):
            if connection:
                connection.close()
            connection = server.fresh("bench_remote")
            create(connection, stub)
            knowledge_base(connection, embedder, CHUNKING)
            # Now the gateway runs, and has its HTTP client.
            connection.execute("SELECT ok FROM kb.check_embedder('stub')")
            pid = server.processes("kb gateway")[0]
            before = memory_kb(pid, "RssAnon")
            seconds = seconds_to_ready(connection, given)
            growth = (memory_kb(pid, "RssAnon") - before) / 1024
            took[embedder] = min(seconds, took.get(embedder, seconds))
    server.drop(connection)
    seen = stub.stop()
    chunks = len(given) * ingest.CHUNKS_EACH
    ratio = took["stub"] / took["hash"]
    possible = CONCURRENCY * BATCH * 1000 / LATENCY_MS
    rate = chunks / took["stub"]
    good = rate >= 0.85 * possible or ratio <= 1.3
    report.add(
        f"ingest {chunks:,} chunks by a provider ({LATENCY_MS} ms, {CONCURRENCY} x {BATCH}), to ready",
        f"{took['stub']:.1f} s, {rate:,.0f} chunks/s",
        f"{took['hash']:.1f} s (hash)",
        f"{ratio:.2f}; {rate / possible:.0%} of the {possible:,.0f}/s that it can give",
        ">= 85 % or <= 1.3",
        good,
    )
    report.add("the gateway's growth through it", f"{growth:.0f} MB", "", "", "<= 40 MB", growth <= 40)
    report.note(f"remote: {seen['requests']} requests for {4} ingestions of which 2 by the stub, at most {seen['at once']} at one time; its own process works on the same 2 cores")


def short_ones(server: Server, report: Report, latency_ms: int) -> None:
    """Chunks of many documents share a request, and as many requests are under way as may be, where the provider is what limits."""
    writer = Writer(14)
    given = [
        Jsonb({"external_id": f"d{i}", "content": writer.paragraph(WORDS, i), "content_type": "text/plain"})
        for i in range(SHORT_ONES)
    ]
    stub = Stub(server, latency_ms=latency_ms)
    connection = server.fresh("bench_remote")
    create(connection, stub)
    knowledge_base(connection, "stub", {"strategy": "none"})
    # In one transaction: the worker finds them all when it begins, so it never waits for the next ones.
    with connection.transaction():
        put_documents(connection, "bench", given, 10 * ingest.BATCH)
    begun = time.perf_counter()
    connection.execute("SELECT kb.wait('bench', 500)")
    rate = len(given) / (time.perf_counter() - begun)
    vectors = connection.execute("SELECT vectors FROM kb.status WHERE kb_id = 'bench'").fetchone()[0]
    if vectors != len(given):
        raise AssertionError(f"{vectors} vectors of {len(given)} documents of one chunk")
    server.drop(connection)
    seen = stub.stop()
    texts = len(given) / seen["requests"]
    possible = CONCURRENCY * BATCH * 1000 / latency_ms
    at_once = CONCURRENCY if latency_ms == SLOW_MS else 1
    report.add(
        f"  {len(given):,} documents of one chunk ({latency_ms} ms, {CONCURRENCY} x {BATCH}), from their commit to ready",
        f"{rate:,.0f} chunks/s",
        f"{possible:,.0f} chunks/s (the provider)",
        f"{texts:.0f} texts a request, {seen['at once']} at one time",
        f">= {FULL * BATCH:.0f} texts" + (f", {at_once} at one time" if at_once > 1 else ""),
        texts >= FULL * BATCH and seen["at once"] >= at_once,
    )


def edits(server: Server, report: Report) -> None:
    stub = Stub(server, latency_ms=LATENCY_MS)
    connection = server.fresh("bench_remote")
    create(connection, stub)
    knowledge_base(connection, "stub", {"strategy": "none"})
    question = "the words of the question, which the gateway has seen"
    connection.execute("SELECT kb.put_document('bench', 'first', 'The first.')")
    connection.execute("SELECT kb.wait('bench', 60)")
    find = "SELECT count(*) FROM kb.query('bench', %s, 1) WHERE content = %s"
    times = []
    for i in range(EDITS):
        # The text is the question and a number: only its own vector can be the nearest to it.
        text = f"{question} {i}"
        connection.execute("SELECT count(*) FROM kb.query('bench', %s, 1)", [text])
        connection.execute("SELECT kb.put_document('bench', %s, %s)", [f"d{i}", text])
        begun = time.perf_counter()
        while connection.execute(find, [text, text]).fetchone()[0] == 0:
            if time.perf_counter() - begun > 30:
                raise TimeoutError("a document is not found 30 s after its commit")
        times.append((time.perf_counter() - begun) * 1000)
    server.drop(connection)
    stub.stop()
    over = median(times) - LATENCY_MS
    report.add(
        "from a commit to being found by kb.query, p50", f"{median(times):.0f} ms", f"{LATENCY_MS} ms (the provider)",
        f"+{over:.0f} ms", "<= 150 ms", over <= 150,
    )


def rate(server: Server, report: Report) -> None:
    """For more than a minute, in which next to nothing is computed: beside `memory`, which times nothing."""
    stub = Stub(server, record="true")
    connection = server.fresh("bench_remote")
    create(connection, stub, rpm=RPM, batch_size=1)
    knowledge_base(connection, "stub", {"strategy": "none"})
    count = RPM * RPM_SECONDS // 60
    put_documents(connection, "bench", [{"external_id": f"d{i}", "content": f"document {i}"} for i in range(count)], seconds=200)
    server.drop(connection)
    most = stub.stop()["in a minute"]
    report.add(
        f"requests in the busiest minute with rpm {RPM}", f"{most}", f"{RPM}", f"{most / RPM - 1:+.1%}",
        "within 3 %, never above", 0.97 * RPM <= most <= RPM,
    )
