"""MiniLM through the gateway: batches of chunks, and one short question at a time."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from psycopg.types.json import Jsonb

import texts
from report import Report, percentile
from server import Server, cpu_seconds, put_documents

BATCH, CALLS, QUESTIONS, WARM_UP, ROUNDS = 96, 2, 40, 10, 3
# [CLS] and [SEP], which the model reads with every text.
SPECIAL = 2
TARGET = 4_000
THREADS = os.cpu_count() or 1
# How many sessions ask at once, how long, and what: as onnx.py asks.
SESSIONS, SECONDS = 8, 4
QUESTION = """\\set n random(0, 49)
SELECT v FROM kb.embed('{embedder}', ARRAY['how do I create table number ' || :n || '?'], 'query') AS v;
"""
# Characters that the worker ingests, and the documents that they are.
INGESTED, DOCUMENTS = 200_000, 10


def create_int8(connection) -> None:
    connection.execute(
        "SELECT kb.create_embedder('int8', 'local', 'all-MiniLM-L6-v2', config => '{\"compute\": \"int8\"}')"
    )


def batches(server: Server, connection) -> dict[str, list[tuple[str, int]]]:
    """Chunks of the manual, with the tokens that the model reads of each, by what they are."""
    if "batches" not in server.shared:
        text = texts.manual(server.manual)[:1_500_000]
        kinds = {
            "chunks of 128 tokens": {"strategy": "fixed", "size": 126, "overlap": 0},
            "chunks of 256 tokens": {"strategy": "fixed", "size": 254, "overlap": 0},
            "chunks of 20 to 256 tokens, mixed": {"strategy": "recursive", "size": 254, "overlap": 0},
        }
        server.shared["batches"] = {
            what: connection.execute(
                "SELECT content, token_count + %s FROM kb.chunk(%s, %s, 'minilm') ORDER BY ordinal",
                [SPECIAL, text, Jsonb(setting)],
            ).fetchall()
            for what, setting in kinds.items()
        }
        mixed = "chunks of 20 to 256 tokens, mixed"
        server.shared["batches"][mixed] = [c for c in server.shared["batches"][mixed] if c[1] >= 20]
    return server.shared["batches"]


def embed(connection, embedder: str, batch: list[str]) -> None:
    rows = connection.execute("SELECT vector_dims(v) FROM kb.embed(%s, %s) AS v", [embedder, batch]).fetchall()
    if rows != [(384,)] * len(batch):
        raise AssertionError(f"{len(rows)} vectors came back for {len(batch)} texts")


def some(chunks: list[tuple[str, int]], calls: int) -> list[list[tuple[str, int]]]:
    """A batch for each call: other texts in each, from all over the manual."""
    return [chunks[i :: len(chunks) // BATCH][:BATCH] for i in range(calls)]


def embed_all(connection, embedder: str, taken: list[list[tuple[str, int]]]) -> tuple[float, int]:
    """The seconds that all batches take, and their tokens."""
    begun = time.perf_counter()
    for batch in taken:
        embed(connection, embedder, [content for content, _ in batch])
    return time.perf_counter() - begun, sum(count for batch in taken for _, count in batch)


class Onnx:
    """ONNX Runtime in a process of its own, asked for one figure after the other."""

    def __init__(self, options, texts_of: dict[str, list[str]], kind: str):
        tokenizer = f"{options.models}/all-MiniLM-L6-v2/tokenizer.json"
        program = [sys.executable, str(Path(__file__).with_name("onnx.py")), tokenizer, options.onnx, str(THREADS), kind]
        environment = {**os.environ, "PYTHONPATH": options.onnx_libraries}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(program, stdin=pipe, stdout=pipe, env=environment, text=True)
        self.process.stdin.write(json.dumps(texts_of) + "\n")

    def figure(self, name: str) -> float:
        """The rate for the texts of this name; for a number, the time of so many questions in one batch."""
        self.process.stdin.write(f"{name}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait(60)


def pgbench(server: Server, script: str, arguments: list[str], directory: str) -> str:
    """What pgbench prints after running a script, in one thread: it leaves nearly all of the machine to what is measured."""
    options = server.options
    file = Path(directory, "script.sql")
    file.write_text(script)
    program = [options.pgbench, "-h", options.host, "-p", str(options.port), "-U", "postgres", "-n", "-M", "prepared", "-j", "1"]
    program += [*arguments, "-f", str(file), "bench_model"]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=SECONDS + 120, cwd=directory)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["nothing"]
        raise RuntimeError(f"pgbench ended with {done.returncode} and said: {said[-1]}")
    return done.stdout


def questions_at_once(server: Server, embedder: str, sessions: int) -> float:
    """Questions a second of so many sessions, each of which asks another one as soon as it has its vector."""
    with tempfile.TemporaryDirectory() as directory:
        said = pgbench(server, QUESTION.format(embedder=embedder), ["-c", str(sessions), "-T", str(SECONDS)], directory)
    rate = re.search(r"^tps = ([0-9.]+)", said, re.MULTILINE)
    if not rate:
        raise RuntimeError(f"pgbench said: {said}")
    return float(rate[1])


def run(server: Server, report: Report) -> None:
    connection = server.fresh("bench_model")
    create_int8(connection)
    # Else the same question would be embedded once.
    connection.execute("ALTER SYSTEM SET kb.query_cache_size = 0")
    connection.execute("SELECT pg_reload_conf()")
    for embedder, kind, ratio in (("minilm", "f32", 1.1), ("int8", "int8", 1.3)):
        compare(server, report, connection, embedder, kind, ratio)
        one, many = questions_at_once(server, embedder, 1), questions_at_once(server, embedder, SESSIONS)
        batched = server.shared.get(f"onnx {kind} batched")
        report.add(
            f"MiniLM {kind}, questions of {SESSIONS} sessions at once",
            f"{many:.0f}/s",
            f"of one {one:.0f}/s" + (f"; ONNX Runtime {kind}, {SESSIONS} in one batch, {batched:.1f} of one" if batched else ""),
            f"{many / one:.1f}",
            ">= 5",
            many / one >= 5,
        )
    connection.execute("ALTER SYSTEM RESET kb.query_cache_size")
    connection.execute("SELECT pg_reload_conf()")
    ingested(server, report, connection)
    report.note(
        f"model: kb.embed, {BATCH} texts of PostgreSQL's manual a call; tokens as the model reads them, [CLS] and [SEP] "
        "included; short queries and sessions at once are those of pgbench, in one thread, whose statement is prepared once, as drivers do with what is asked often, beside a process of Python with ONNX Runtime, and for both the time of a query begins with its text. ONNX=directory of its graphs puts ONNX Runtime "
        "beside it; on the machine of 2026-11-21 it gave 8,928 tokens/s in f32 and 15,535 in int8 at 128 tokens, 8,256 and 14,667 at 256, and 2.3 and 1.2 ms for a query."
    )
    server.shared["minilm worked"] = True
    connection.close()


def compare(server: Server, report: Report, connection, embedder: str, kind: str, ratio: float) -> None:
    """Rates and the time of a question, in f32 or int8, of kb and, where its graphs are given, ONNX Runtime: they take turns, and
    the best round of each counts."""
    embed(connection, embedder, ["The model is loaded by now."])
    gateway = server.processes("kb gateway")[0]
    taken = {
        what: some(chunks, CALLS if "128" in what else 1) for what, chunks in batches(server, connection).items()
    }
    texts_of = {what: [content for batch in given for content, _ in batch] for what, given in taken.items()}
    onnx = Onnx(server.options, texts_of, kind) if server.options.onnx else None
    ours, theirs = {what: [] for what in taken}, {what: [] for what in taken}
    questions, their_questions, their_batches = [], [], []
    for _ in range(ROUNDS):
        for what, given in taken.items():
            cpu = cpu_seconds(gateway)
            took, tokens = embed_all(connection, embedder, given)
            ours[what].append((tokens / took, len(given) * BATCH / took, (cpu_seconds(gateway) - cpu) / took))
            if onnx:
                theirs[what].append(onnx.figure(what))
        questions.append(times_of_questions(server, embedder))
        if onnx:
            their_questions.append(onnx.figure("1"))
            their_batches.append(onnx.figure(str(SESSIONS)))
    if onnx:
        onnx.end()
        server.shared[f"onnx {kind} batched"] = SESSIONS * min(their_questions) / min(their_batches)
        server.shared[f"onnx {kind}"] = max(theirs["chunks of 128 tokens"])
    for what, rounds in ours.items():
        rate, chunks_a_second, cores = max(rounds)
        other = max(theirs[what], default=None)
        report.add(
            f"MiniLM {kind}, {what}",
            f"{rate:,.0f} tokens/s, {chunks_a_second:.1f} chunks/s",
            f"ONNX Runtime {kind} {other:,.0f}" if other else "",
            f"{rate / other:.2f}, {cores:.1f} cores busy" if other else f"{cores:.1f} cores busy",
            f">= {ratio}" if other else f">= {TARGET:,} tokens/s",
            rate / other >= ratio if other else rate >= TARGET,
        )
    times, other = min(questions, key=median), min(their_questions, default=None)
    report.add(
        f"MiniLM {kind}, one short query, warm, p50",
        f"{median(times):.1f} ms",
        f"ONNX Runtime {kind} {other:.1f} ms" if other else "",
        f"p95 {percentile(times, 95):.1f} ms",
        "<= its" if other else "<= 10 ms",
        median(times) <= (other or 10),
    )


def times_of_questions(server: Server, embedder: str) -> list[float]:
    """Milliseconds of each, by pgbench. The gateway remembers none meanwhile (run)."""
    with tempfile.TemporaryDirectory() as directory:
        pgbench(server, QUESTION.format(embedder=embedder), ["-t", str(QUESTIONS + WARM_UP), "-l"], directory)
        (log,) = Path(directory).glob("pgbench_log.*")
        # Client, number of its transaction, microseconds …
        times = [int(line.split()[2]) / 1000 for line in log.read_text().splitlines()]
    return times[WARM_UP:]


def ingested(server: Server, report: Report, connection) -> None:
    """The worker's rate over some documents of many chunks, beside kb.embed's over the same chunks: in turns, the best of each."""
    # Beyond what was embedded above.
    text = texts.manual(server.manual)[-INGESTED:]
    size = len(text) // DOCUMENTS
    documents = [
        Jsonb({"external_id": str(i), "content": text[i * size : (i + 1) * size], "content_type": "text/plain"})
        for i in range(DOCUMENTS)
    ]
    worker, alone = [], []
    for _ in range(ROUNDS):
        connection.execute(
            "SELECT kb.create_knowledge_base('worked', embedder => 'minilm', "
            'chunking => \'{"strategy": "fixed", "size": 126, "overlap": 0}\')'
        )
        begun = time.perf_counter()
        put_documents(connection, "worked", documents, seconds=300)
        worker.append(time.perf_counter() - begun)
        chunks = connection.execute(
            "SELECT c.content, c.token_count FROM kb.chunks c JOIN kb.documents d USING (document_id) "
            "WHERE d.kb_id = 'worked' ORDER BY 1"
        ).fetchall()
        begun = time.perf_counter()
        for i in range(0, len(chunks), BATCH):
            embed(connection, "minilm", [content for content, _ in chunks[i : i + BATCH]])
        alone.append(time.perf_counter() - begun)
        connection.execute("SELECT kb.drop_knowledge_base('worked')")
    worker, alone = min(worker), min(alone)
    tokens = sum(count + SPECIAL for _, count in chunks)
    report.add(
        f"MiniLM f32, {len(chunks):,} chunks from put to ready",
        f"{tokens / worker:,.0f} tokens/s",
        f"kb.embed {tokens / alone:,.0f}",
        f"{alone / worker:.2f}",
        ">= 0.95",
        alone / worker >= 0.95,
    )
