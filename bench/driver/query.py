"""kb.query_vector against the best hand-written SQL for the same columns; kb.query with a question seen before."""

import json
import struct
import time
from statistics import median

from psycopg.types.json import Jsonb

import ingest
from report import Report, percentile
from server import Server, Vector, adapt_vectors, put_documents
from texts import Writer

QUERIES, WARM_UP, RECALL_OVER, TOP_K = 500, 60, 200, 5
COLUMNS = "chunk_id, kb_id, external_id, title, content, score, token_count, metadata, locator, stale"
BY_KB = f"SELECT {COLUMNS} FROM kb.query_vector('bench', %s, {TOP_K})"
# What somebody who knows the tables would write: the inner query scans the index, the outer one joins its five rows.
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
    """Milliseconds and rows of one statement, prepared where the connection prepares."""
    begun = time.perf_counter()
    rows = connection.execute(sql, [argument], prepare=True, binary=True).fetchall()
    return (time.perf_counter() - begun) * 1000, rows


def side_by_side(connection, sides: list[tuple[str, list]], warm_up: int):
    """Times and rows of statements over their arguments, in turn; each goes first as often as the others."""
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
    made = ingest.bench_database(server)
    table = ingest.hand_table(made)
    vectors = vectors_of(made, "hash", questions(QUERIES + WARM_UP))
    by_hand = BY_HAND.format(table=table, top_k=TOP_K)
    made.execute("DO $$BEGIN CREATE ROLE bench_reader IN ROLE kb_reader; EXCEPTION WHEN duplicate_object THEN END$$")

    # Ingestion ends when kb's own processes have done their part; autovacuum is off.
    waiting = time.monotonic()
    while server.processes("kb indexer") and time.monotonic() - waiting < 60:
        time.sleep(0.1)
    with session(server) as connection:
        what = "kb.query_vector p50 right after ingestion, before autovacuum"
        measure(connection, report, vectors[: WARM_UP + 100], by_hand, what, 1.3)
    ingest.settle(made)
    with session(server) as connection:
        what = "kb.query_vector p50, 20,000 chunks, top_k 5"
        times, rows = measure(connection, report, vectors, by_hand, what, 1.3)
        report.compare("  p95", *(percentile(t, 95) for t in times))
        with session(server, prepares=True) as prepared:
            # What is by hand is planned once.
            measure(prepared, report, vectors, by_hand, "  p50 of both prepared in the server", None)
        nearest = [
            {row[0] for row in connection.execute(EXACT.format(table=table, top_k=TOP_K), [v]).fetchall()}
            for v in vectors[WARM_UP:][:RECALL_OVER]
        ]
        recall = [
            sum(len({row[0] for row in found} & true) for found, true in zip(side, nearest)) / (TOP_K * len(nearest))
            for side in rows
        ]
        report.add(
            "  recall@5 against an exact scan", f"{recall[0]:.3f}", f"{recall[1]:.3f}", f"{recall[0] - recall[1]:+.3f}"
        )
        same = sum([r[:7] for r in a] == [r[:7] for r in b] for a, b in zip(*rows))
        report.note(
            f"query: {QUERIES} queries, one connection, taking turns, planned each time, ef_search 40 and"
            f" iterative_scan strict_order on both sides; {same} of {QUERIES} answers are equal row by row"
        )
    with session(server) as connection:
        # kb.query reads vectors for its caller; the hand-written SQL needs this grant.
        connection.execute(f"GRANT SELECT ON {table} TO bench_reader")
        connection.execute("SET ROLE bench_reader")
        measure(connection, report, vectors, by_hand, "the same as a kb_reader, under row-level security", None)


def session(server: Server, prepares: bool = False):
    connection = server.connect(ingest.DATABASE, prepares)
    adapt_vectors(connection)
    # pgvector's settings exist once its library is loaded.
    for statement in ("LOAD 'vector'", *SETTINGS):
        connection.execute(statement)
    return connection


def measure(connection, report: Report, vectors: list[Vector], by_hand: str, what: str, target: float | None):
    """One line, p50 against p50. Milliseconds and rows of each side."""
    plan = connection.execute("EXPLAIN " + by_hand, [vectors[0]]).fetchall()
    if not any("by_hand_index" in line for (line,) in plan):
        raise AssertionError("the hand-written SQL does not use the HNSW index")
    times, rows = side_by_side(connection, [(BY_KB, vectors), (by_hand, vectors)], WARM_UP)
    if any(len(found) != TOP_K for side in rows for found in side):
        raise AssertionError(f"some queries returned other than {TOP_K} rows")
    kb, hand = (median(t) for t in times)
    report.compare(what, kb, hand, most=target)
    return times, rows


def run_seen(server: Server, report: Report) -> None:
    connection = ingest.bench_database(server)
    ingest.settle(connection)
    texts = questions(50, seed=3)
    connection.execute(
        "SELECT kb.create_knowledge_base('few', embedder => 'minilm', chunking => %s)", [Jsonb({"strategy": "none"})]
    )
    writer = Writer(4)
    given = [{"external_id": f"{i}.txt", "content": writer.paragraph(12, i)} for i in range(100)]
    put_documents(connection, "few", given, seconds=300)
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
