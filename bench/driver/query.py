"""kb.query_vector against the best hand-written SQL for the same columns; kb.query with a question seen before."""

import json
import struct
import time
from statistics import median

from psycopg.types.json import Jsonb

import ingest
from report import Report, percentile
from server import Server, Vector
from texts import Writer

QUERIES, WARM_UP, RECALL_OVER, TOP_K = 500, 60, 200, 5
COLUMNS = "chunk_id, kb_id, external_id, title, content, score, token_count, metadata, locator, stale"
BY_KB = f"SELECT {COLUMNS} FROM kb.query_vector('bench', %s, {TOP_K})"
# What somebody would write who knows the tables: the index scan alone below, its five rows joined above.
BY_HAND = """
SELECT c.chunk_id, 'bench'::text AS kb_id, d.external_id, d.title, c.content, 1 - s.distance AS score, c.token_count,
       d.metadata || c.metadata AS metadata, c.locator, d.content_hash IS DISTINCT FROM d.indexed_hash AS stale
FROM (SELECT chunk_id, build_no, embedding <=> %s AS distance FROM {table} ORDER BY distance LIMIT {top_k}) s
JOIN kb.chunks c USING (chunk_id, build_no)
JOIN kb.documents d USING (document_id)
ORDER BY s.distance"""
EXACT = "SELECT chunk_id FROM {table} ORDER BY (embedding <=> %s) + 0 LIMIT {top_k}"
# What kb.query_vector sets for itself at top_k 5.
SETTINGS = ("SET hnsw.ef_search = 40", "SET hnsw.iterative_scan = strict_order")


def questions(count: int, seed: int = 2) -> list[str]:
    writer = Writer(seed)
    return [writer.question(i) for i in range(count)]


def vectors_of(connection, embedder: str, texts: list[str]) -> list[Vector]:
    rows = connection.execute("SELECT v::text FROM kb.embed(%s, %s, 'query') AS v", [embedder, texts]).fetchall()
    numbers = [json.loads(text) for (text,) in rows]
    return [Vector(struct.pack(f">HH{len(n)}f", len(n), 0, *n)) for n in numbers]


def timed(connection, sql: str, argument):
    """Milliseconds and rows of one prepared statement."""
    begun = time.perf_counter()
    rows = connection.execute(sql, [argument], prepare=True, binary=True).fetchall()
    return (time.perf_counter() - begun) * 1000, rows


def side_by_side(connection, sides: list[tuple[str, list]], warm_up: int):
    """Times and rows of statements over their arguments, taking turns, each first as often as the others."""
    times = [[] for _ in sides]
    rows = [[] for _ in sides]
    for i in range(len(sides[0][1])):
        for j in range(len(sides)):
            side = (i + j) % len(sides)
            sql, arguments = sides[side]
            took, found = timed(connection, sql, arguments[i])
            if i >= warm_up:
                times[side].append(took)
                rows[side].append(found)
    return times, rows


def run(server: Server, report: Report) -> None:
    connection = ingest.bench_database(server)
    table = ingest.vector_table(connection)
    vectors = vectors_of(connection, "hash", questions(QUERIES + WARM_UP))
    # pgvector's settings exist once its library is loaded.
    connection.execute("LOAD 'vector'")
    for setting in SETTINGS:
        connection.execute(setting)
    by_hand = BY_HAND.format(table=table, top_k=TOP_K)
    exact = EXACT.format(table=table, top_k=TOP_K)
    plan = connection.execute("EXPLAIN " + by_hand, [vectors[0]]).fetchall()
    if not any("_hnsw" in line for (line,) in plan):
        raise AssertionError("the hand-written SQL does not use the HNSW index")
    measure(connection, report, vectors, by_hand, "kb.query_vector p50, 20,000 chunks, top_k 5", (exact, 1.3))

    # The same as a member of kb_reader, for whom row-level security holds; no target is set for it.
    connection.execute("DO $$BEGIN CREATE ROLE bench_reader IN ROLE kb_reader; EXCEPTION WHEN duplicate_object THEN END$$")
    connection.execute("SET ROLE bench_reader")
    try:
        measure(connection, report, vectors, by_hand, "the same as a kb_reader, under row-level security", None)
    finally:
        connection.execute("RESET ROLE")


def measure(connection, report: Report, vectors: list[Vector], by_hand: str, what: str, judged) -> None:
    times, rows = side_by_side(connection, [(BY_KB, vectors), (by_hand, vectors)], WARM_UP)
    short = [sum(len(found) != TOP_K for found in side) for side in rows]
    if short[0]:
        raise AssertionError(f"{short[0]} queries of kb.query_vector returned other than {TOP_K} rows")
    (kb, hand), (kb95, hand95) = (median(t) for t in times), (percentile(t, 95) for t in times)
    ratio, target = kb / hand, "<= 1.3" if judged else ""
    report.add(what, f"{kb:.2f} ms", f"{hand:.2f} ms", f"{ratio:.2f}", target, ratio <= judged[1] if judged else None)
    if not judged:
        return
    # Fetched as it is, not timed: the nearest by a full scan.
    nearest = [[row[0] for row in connection.execute(judged[0], [v]).fetchall()] for v in vectors[WARM_UP:][:RECALL_OVER]]
    recall = [
        sum(len({row[0] for row in found} & set(true)) for found, true in zip(side, nearest)) / (TOP_K * len(nearest))
        for side in rows
    ]
    report.add("  p95", f"{kb95:.2f} ms", f"{hand95:.2f} ms", f"{kb95 / hand95:.2f}")
    report.add("  recall@5 against an exact scan", f"{recall[0]:.3f}", f"{recall[1]:.3f}", f"{recall[0] - recall[1]:+.3f}")
    same = sum([r[:7] for r in a] == [r[:7] for r in b] for a, b in zip(*rows))
    report.note(f"query: {QUERIES} queries, one connection, taking turns, server-side prepared; {same} of {QUERIES} answers are equal row by row")


def run_seen(server: Server, report: Report) -> None:
    connection = ingest.bench_database(server)
    texts = questions(50, seed=3)
    connection.execute("SELECT kb.create_knowledge_base('few', embedder => 'minilm', chunking => %s)", [Jsonb({"strategy": "none"})])
    writer = Writer(4)
    given = [Jsonb({"external_id": f"{i}.txt", "content": writer.paragraph(12, i)}) for i in range(100)]
    connection.execute("SELECT count(*) FROM kb.put_documents('few', %s)", [given])
    connection.execute("SELECT kb.wait('few', 300)")
    for kb_id, embedder, what in (("bench", "hash", "hash, 20,000 chunks"), ("few", "minilm", "MiniLM, 100 chunks")):
        # Ten rounds over fifty questions that were each asked before.
        arguments = [texts * 10, vectors_of_each(connection, embedder, texts) * 10]
        sql = [f"SELECT {COLUMNS} FROM kb.{f}('{kb_id}', %s, {TOP_K})" for f in ("query", "query_vector")]
        for text in texts:
            connection.execute(sql[0], [text])
        times, rows = side_by_side(connection, list(zip(sql, arguments)), 50)
        if any([r[0] for r in a] != [r[0] for r in b] for a, b in zip(*rows)):
            raise AssertionError(f"kb.query and kb.query_vector on {kb_id} answer differently")
        by_text, by_vector = (median(t) for t in times)
        report.add(
            f"kb.query, question seen before ({what}) p50",
            f"{by_text:.2f} ms",
            f"{by_vector:.2f} ms (kb.query_vector)",
            f"{by_text - by_vector:+.2f} ms",
            "<= 1 ms",
            by_text - by_vector <= 1,
        )
    connection.execute("SELECT kb.drop_knowledge_base('few')")


def vectors_of_each(connection, embedder: str, texts: list[str]) -> list[Vector]:
    """One call a text, so that each vector is the very one that kb.query gets."""
    return [vectors_of(connection, embedder, [text])[0] for text in texts]
