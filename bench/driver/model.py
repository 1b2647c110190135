"""MiniLM through the gateway: batches of chunks, and one short question at a time."""

import time
from statistics import median

from psycopg.types.json import Jsonb

import texts
from report import Report, percentile
from server import Server, cpu_seconds

BATCH, CALLS, QUESTIONS = 96, 2, 60
# [CLS] and [SEP], which the model reads with every text.
SPECIAL = 2
TARGET = 1_400


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


def run(server: Server, report: Report) -> None:
    connection = server.fresh("bench_model")
    embed(connection, "minilm", ["The model is loaded by now."])
    gateway = server.processes("kb gateway")[0]
    for what, chunks in batches(server, connection).items():
        calls = CALLS if "mixed" not in what else 1
        # Other texts in each call, from all over the manual.
        taken = [chunks[i :: len(chunks) // BATCH][:BATCH] for i in range(calls)]
        cpu, begun = cpu_seconds(gateway), time.perf_counter()
        for batch in taken:
            embed(connection, "minilm", [content for content, _ in batch])
        took = time.perf_counter() - begun
        cores = (cpu_seconds(gateway) - cpu) / took
        tokens = sum(count for batch in taken for _, count in batch)
        report.add(
            f"MiniLM, {what}",
            f"{tokens / took:,.0f} tokens/s, {calls * BATCH / took:.1f} chunks/s",
            "",
            f"{cores:.1f} cores busy, {tokens / took / cores:,.0f} tokens/s of each",
            f">= {TARGET:,} tokens/s",
            tokens / took >= TARGET,
        )
    times = []
    for i in range(QUESTIONS + 5):
        begun = time.perf_counter()
        connection.execute(
            "SELECT v FROM kb.embed('minilm', %s, 'query') AS v", [[f"how do I create table number {i}?"]]
        ).fetchall()
        times.append((time.perf_counter() - begun) * 1000)
    times = times[5:]
    report.add(
        "MiniLM, one short query, warm, p50",
        f"{median(times):.1f} ms",
        "",
        f"p95 {percentile(times, 95):.1f} ms",
        "<= 30 ms",
        median(times) <= 30,
    )
    report.note(
        f"model: kb.embed, {BATCH} texts of PostgreSQL's manual a call; tokens as the model reads them, [CLS] and [SEP] included"
    )
    server.shared["minilm worked"] = True
    connection.close()
