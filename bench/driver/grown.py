"""What lasts: ingestion into a knowledge base that has many chunks and their indexes, in ten steps, with questions meanwhile; and
how the costs grow. Of more than 50,000 chunks also the questions when all steps have their index, beside the same vectors in one
table with one HNSW index, made by hand."""

import math
import multiprocessing
import threading
import time
from statistics import median

from psycopg.types.json import Jsonb

import ingest
import query
from report import Report, percentile
from server import Server, adapt_vectors, memory_kb
from texts import Writer

DATABASE, STEPS, CHUNKS_EACH, BATCH, TOP_K = "bench_grown", 10, 20, 100, 10
QUERIES, WARM_UP, PROBES = 200, 20, 20
# What p50 in the end is compared with: the first size of at least so many.
SMALL = 20_000
# Beyond so many, the index of what the steps brought is waited for, and one table by hand stands beside it in the end, whose index takes
# as long to build as all of kb's; at 20,000 and 50,000 others are measured beside one (query.py, filters.py).
UP_TO = 50_000
# Questions asked meanwhile wait so long in between.
PAUSE = 0.05
FORK = multiprocessing.get_context("fork")
BY_KB = f"SELECT chunk_id, score FROM kb.query_vector('bench', %s, {TOP_K})"
PROCESSES = ("kb worker", "kb indexer", "kb gateway")
SEGMENTS = "SELECT segments, unindexed FROM kb.status WHERE kb_id = 'bench'"


def run(server: Server, report: Report) -> None:
    # Whole documents at each eighth and each step.
    unit = 8 * CHUNKS_EACH
    first = server.options.grown_chunks // unit * unit
    step = first // 5 // CHUNKS_EACH * CHUNKS_EACH
    connection = server.fresh(DATABASE)
    connection.execute("SET statement_timeout = 0")
    # So that the graph of all fits, for kb and by hand.
    connection.execute(f"ALTER DATABASE {DATABASE} SET maintenance_work_mem = '{64 + first * 3 * 3 // 1000}MB'")
    ingest.create_knowledge_base(connection)
    # Nearly uniform noise, which HNSW finds hardest: for both sides.
    connection.execute("SELECT kb.alter_knowledge_base('bench', retrieval => %s)", [Jsonb({"ef_search": 250})])
    vectors = query.vectors_of(connection, "hash", query.questions(QUERIES + WARM_UP))
    put = Putter(connection)
    sizes, times = [], []
    # 1, 2, 4 and 8 times as many into an empty one.
    at_rest, memory, asking, states = {}, {title: [] for title in PROCESSES}, [], []
    for size in (first // 8, first // 4, first // 2, first):
        with Memory(server) as used:
            times.append(put.up_to(size))
            server.await_indexes(connection, 1800)
        for title in PROCESSES:
            memory[title].append(used.most[title])
        sizes.append(size)
        settle(server, connection)
        states.append(connection.execute(SEGMENTS).fetchone())
        at_rest[size], used_by_session = ask(server, vectors)
        asking.append(used_by_session)
    # As they are asked meanwhile: after a pause little is in the processor's caches.
    with Asker(server, vectors) as asker:
        time.sleep(QUERIES * PAUSE / 2)
    rest = median(asker.times)
    nearest = Nearest(server, connection, vectors[:PROBES])
    rates, meanwhile, recalls, gateway = [], [], [nearest.recall()], []
    # One in the middle would make the step that it meets slower than the others.
    connection.execute("CHECKPOINT")
    for _ in range(STEPS):
        with Asker(server, vectors) as asker:
            took = put.up_to(size + step)
        size += step
        rates.append(step / took)
        meanwhile += asker.times
        recalls.append(nearest.recall())
        gateway += [memory_kb(pid, "VmRSS") // 1024 for pid in server.processes("kb gateway")]
    state = connection.execute(SEGMENTS).fetchone()
    is_large, settled = server.options.grown_chunks > UP_TO, ""
    if is_large:
        begun = time.monotonic()
        settle(server, connection)
        found = connection.execute(SEGMENTS).fetchone()
        settled = f", {found[0]} and {found[1]:,} {time.monotonic() - begun:.0f} s later"
    report.note(
        f"grown: {first:,} chunks, with {', '.join(f'{n}+{rest:,}' for n, rest in states)} segments and vectors without an index at"
        f" rest, then {STEPS} steps of {step:,}; after the last {state[0]} segments and {state[1]:,} vectors"
        f" without an index{settled}; steps at"
        f" {', '.join(f'{rate:,.0f}' for rate in rates)} chunks/s; gateway {max(gateway, default=0)} MB at most"
    )
    ratio = min(rates) / rates[0]
    report.add(
        f"ingest into {first:,} chunks and more with their indexes, slowest step of {step:,}",
        f"{min(rates):,.0f} chunks/s",
        f"{rates[0]:,.0f} chunks/s (first step)",
        f"{ratio:.2f}",
        ">= 0.8",
        ratio >= 0.8,
    )
    ratio = median(meanwhile) / rest
    report.add(
        "  p50 of questions meanwhile; p95",
        f"{median(meanwhile):.2f} ms; {percentile(meanwhile, 95):.2f} ms",
        f"{rest:.2f} ms (at rest before, with the same pauses)",
        f"{ratio:.2f}",
        "<= 2",
        ratio <= 2,
    )
    report.add(
        f"  recall@{TOP_K} against an exact scan, the least after a step", f"{min(recalls):.3f}", "", "", ">= 0.97", min(recalls) >= 0.97
    )
    if is_large:
        last, _ = ask(server, vectors)
        small = next((size for size in sizes if size >= SMALL), first)
        report.compare(f"  p50 at {size:,} chunks, at rest", last, at_rest[small], f"at {small:,}", 1.5)
        beside_one_table(server, report, connection, vectors, size)
    seconds = [sum(times[: i + 1]) for i in range(len(times))]
    growth(report, "ingestion, seconds for all", sizes, seconds)
    growth(report, "p50 of questions at rest, ms", list(at_rest), list(at_rest.values()))
    for title in PROCESSES:
        growth(report, f"the memory of its own of the {title}, MB at most", sizes, memory[title])
    growth(report, "the memory of its own of a session that asks, MB", sizes, asking)
    server.drop(connection)


def beside_one_table(server: Server, report: Report, connection, vectors, size: int) -> None:
    """p50 against that of one table with one index by hand of the same rows."""
    table = ingest.hand_table(connection)
    by_hand = query.BY_HAND.format(table=table, top_k=TOP_K)
    with session(server) as reader:
        sides = [(BY_KB.replace("chunk_id, score", query.COLUMNS), vectors), (by_hand, vectors)]
        (kb, hand), _ = query.side_by_side(reader, sides, WARM_UP)
    what = f"  the same, at {size:,}, and one table with one index by hand"
    report.compare(what, median(kb), median(hand), most=1.2)


class Putter:
    """Puts documents of chunks like those of ingest, and waits until they are ready."""

    def __init__(self, connection):
        self.connection, self.writer, self.number = connection, Writer(11), 0

    def up_to(self, chunks: int) -> float:
        """Seconds from the first put until all are ready. The texts are made before."""
        batches = []
        while (left := chunks // CHUNKS_EACH - self.number) > 0:
            batches.append([self.document() for _ in range(min(BATCH, left))])
        begun = time.perf_counter()
        for batch in batches:
            self.connection.execute("SELECT count(*) FROM kb.put_documents('bench', %b)", [batch])
        self.connection.execute("SELECT kb.wait('bench', 3000)")
        return time.perf_counter() - begun

    def document(self) -> Jsonb:
        i = self.number
        self.number += 1
        text = "\n\n".join(self.writer.paragraph(self.writer.chance.randint(90, 115), i) for _ in range(CHUNKS_EACH))
        return Jsonb({"external_id": f"document-{i:06}", "content": text, "content_type": "text/plain"})


class Memory(threading.Thread):
    """The most memory of its own that a process of each title has, in MB, as long as it is entered."""

    def __init__(self, server: Server):
        super().__init__(daemon=True)
        self.server, self.most = server, dict.fromkeys(PROCESSES, 1.0)
        self.is_over = threading.Event()

    def run(self) -> None:
        while not self.is_over.wait(0.05):
            for title in PROCESSES:
                for pid in self.server.processes(title):
                    self.most[title] = max(self.most[title], memory_kb(pid, "RssAnon") / 1024)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_) -> None:
        self.is_over.set()
        self.join()


class Asker:
    """Asks one question after the other in a session and a process of its own, as long as it is entered: in a thread it would wait
    for what this process does meanwhile."""

    def __init__(self, server: Server, vectors):
        self.times: list[float] = []
        self.pipe, theirs = FORK.Pipe()
        self.process = FORK.Process(target=ask_until_told, args=(server, vectors, theirs), daemon=True)

    def __enter__(self):
        self.process.start()
        self.receive()
        return self

    def receive(self):
        if not self.pipe.poll(60):
            raise RuntimeError("the process that asks says nothing")
        said = self.pipe.recv()
        if isinstance(said, Exception):
            raise said
        return said

    def __exit__(self, *_) -> None:
        self.pipe.send(None)
        self.times = self.receive()
        self.process.join()


def ask_until_told(server: Server, vectors, pipe) -> None:
    """Says first that it has warmed up, and in the end how long each question took."""
    times: list[float] = []
    try:
        with session(server) as reader:
            for vector in vectors[:WARM_UP]:
                query.timed(reader, BY_KB, vector)
            pipe.send(None)
            while not pipe.poll(PAUSE):
                took, rows = query.timed(reader, BY_KB, vectors[len(times) % len(vectors)])
                if len(rows) != TOP_K:
                    raise AssertionError(f"an answer has {len(rows)} rows")
                times.append(took)
        pipe.send(times)
    except Exception as error:  # It is raised by who waits for it.
        pipe.send(error)


def session(server: Server):
    connection = server.connect(DATABASE)
    adapt_vectors(connection)
    for statement in ("LOAD 'vector'", "SET hnsw.ef_search = 250", "SET hnsw.iterative_scan = strict_order"):
        connection.execute(statement)
    return connection


def settle(server: Server, connection) -> None:
    """Segments are merged when nothing was written for a while; then what autovacuum does."""
    server.await_indexes(connection, 1800)
    ingest.settle(connection)


def ask(server: Server, vectors) -> tuple[float, float]:
    """p50, and MB of memory of its own that the session has in the end."""
    with session(server) as reader:
        times = [query.timed(reader, BY_KB, vector)[0] for vector in vectors]
        own = memory_kb(reader.info.backend_pid, "RssAnon") / 1024
    return median(times[WARM_UP:]), own


class Nearest:
    """The nearest vectors of some questions by exact scans, of what has come since the last one: nothing goes."""

    def __init__(self, server: Server, connection, vectors):
        self.server, self.vectors = server, vectors
        self.table = ingest.vector_table(connection)
        self.found: list[list[tuple[float, object]]] = [[] for _ in vectors]
        self.seen = -1

    def recall(self) -> float:
        """The part of them that kb finds."""
        found = 0
        with session(self.server) as reader:
            last = reader.execute(f"SELECT max(segment) FROM {self.table}").fetchone()[0]
            exact = (
                f"SELECT (embedding <=> %s) + 0, chunk_id FROM {self.table}"
                f" WHERE segment > {self.seen} AND segment <= {last} ORDER BY 1 LIMIT {TOP_K}"
            )
            for i, vector in enumerate(self.vectors):
                self.found[i] = sorted(self.found[i] + reader.execute(exact, [vector]).fetchall())[:TOP_K]
                found += len({near for _, near in self.found[i]} & {row[0] for row in reader.execute(BY_KB, [vector])})
            self.seen = last
        return found / (len(self.vectors) * TOP_K)


def growth(report: Report, what: str, sizes: list[int], costs: list[float]) -> None:
    """The exponent of cost against size, by least squares of the logarithms."""
    x, y = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    exponent = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y)) / sum((a - mean_x) ** 2 for a in x)
    figures = ", ".join(f"{cost:.1f}" if cost < 100 else f"{cost:.0f}" for cost in costs)
    report.add(f"  growth of {what}, at {sizes[0]:,} chunks and 2, 4, 8 times", figures, "", f"exponent {exponent:.2f}", "<= 1.1", exponent <= 1.1)
