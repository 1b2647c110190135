"""Many tenants of very different sizes in one vector table: what row-level security and the others cost one of them.

Some tenants have the same documents a second time, alone in a table of their own."""

import os
import time
from statistics import median

from psycopg.types.json import Jsonb

import query
from report import Report
from server import Server, Vector, adapt_vectors, put_documents
from texts import Writer

DATABASE = "bench_tenants"
# The largest tenant has a fifth of all chunks, the smallest of 200 one in 1,600.
TENANTS, STEEPNESS = 200, 1.1
# Those that are asked, by their rank: the largest first.
PROBES = (1, 5, 30, 150)
WORDS, BATCH = 30, 1_000
QUERIES, WARM_UP, TOP_K = 200, 20, 10
# Hash vectors are nearly uniform noise, which HNSW finds hardest: with the default, 40, it finds 0.81 of the nearest.
EF_SEARCH = 250
# Rows from which a tenant gets a table of its own, and that an index: the default.
MIN_ROWS = 1_000
INDEXES = (
    "SELECT count(*) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam"
    " WHERE a.amname = 'hnsw' AND i.indisvalid"
)
EXACT = "SELECT chunk_id FROM {table} WHERE build_no = {build_no} ORDER BY (embedding <=> %s) + 0 LIMIT {top_k}"


def run(server: Server, report: Report) -> None:
    sizes = sizes_of(server.options.chunks)
    connection = server.fresh(DATABASE)
    prepare(connection, sum(sizes))
    begun = time.monotonic()
    limit = 300 + sum(sizes) / 100
    fill(connection, sizes, limit)
    until_indexed(server, connection, sizes, limit)
    report.note(
        f"tenants: {TENANTS} tenants with {sizes[-1]:,} to {sizes[0]:,} chunks, {sum(sizes):,} in all; ready and"
        f" indexed, those of the tables of their own too, in {time.monotonic() - begun:.0f} s"
    )
    # What autovacuum and the checkpointer do within minutes; here before anything is timed.
    connection.execute("VACUUM ANALYZE")
    connection.execute("CHECKPOINT")
    vectors = query.vectors_of(connection, "hash", query.questions(QUERIES + WARM_UP))
    recalls = [measure(server, connection, report, rank, sizes[rank - 1], vectors) for rank in PROBES]
    shared, own = min(recalls)
    report.add(
        f"  recall@{TOP_K} against an exact scan, the worst of {len(PROBES)} tenants",
        f"{shared:.3f}",
        f"{own:.3f} (its own table)",
        f"{shared - own:+.3f}",
        ">= 0.97",
        shared >= 0.97,
    )
    server.drop(connection)


def sizes_of(chunks: int) -> list[int]:
    """The chunks of each tenant by its rank (Zipf); the largest has what the others leave."""
    weights = [1 / rank**STEEPNESS for rank in range(1, TENANTS + 1)]
    others = [max(TOP_K, round(chunks * weight / sum(weights))) for weight in weights[1:]]
    return [chunks - sum(others), *others]


def prepare(connection, chunks: int) -> None:
    """The shared table, a reader, and memory for the whole index: what does not fit is inserted row by row, which
    takes many times as long."""
    connection.execute("SELECT kb.create_vector_db('shared', dimension => 384)")
    connection.execute(
        "DO $$BEGIN CREATE ROLE bench_reader IN ROLE kb_reader; EXCEPTION WHEN duplicate_object THEN END$$"
    )
    connection.execute("SET statement_timeout = 0")
    megabytes = 64 + chunks * 3 // 1000
    connection.execute(f"ALTER DATABASE {DATABASE} SET maintenance_work_mem = '{megabytes}MB'")
    # Processes that build an index together have it in /dev/shm, which is small in some containers: then one builds it.
    place = os.statvfs("/dev/shm")
    if place.f_bavail * place.f_frsize < megabytes << 20:
        connection.execute(f"ALTER DATABASE {DATABASE} SET max_parallel_maintenance_workers = 0")


def fill(connection, sizes: list[int], limit: float) -> None:
    """All documents, of a chunk each, in the shared table; then those of the probes again, in tables of their own."""
    writer, number, again = Writer(13), 0, {}
    for rank, size in enumerate(sizes, 1):
        numbers = range(number, number + size)
        given = [Jsonb({"external_id": f"d{i}", "content": writer.paragraph(WORDS, i)}) for i in numbers]
        put(connection, rank, "shared", given)
        number += size
        if rank in PROBES:
            again[rank] = given
    wait(connection, range(1, TENANTS + 1), "shared", limit)
    for rank, given in again.items():
        put(connection, rank, "own", given)
    wait(connection, PROBES, "own", limit)
    expected = number + sum(map(len, again.values()))
    found = connection.execute(
        "SELECT (SELECT count(*) FROM kb.documents WHERE status = 'ready'), (SELECT count(*) FROM kb.chunks)"
    ).fetchone()
    if found != (expected, expected):
        raise AssertionError(f"documents that are ready, and chunks, are {found}, not {expected} each")


def put(connection, rank: int, kb_id: str, given: list[Jsonb]) -> None:
    """A knowledge base with its documents: in one transaction, so that its index is built when all are there."""
    as_tenant(connection, rank)
    with connection.transaction():
        connection.execute(
            "SELECT kb.create_knowledge_base(%s, embedder => 'hash', vector_db => %s, chunking => %s, retrieval => %s)",
            [
                kb_id,
                "shared" if kb_id == "shared" else None,
                Jsonb({"strategy": "none"}),
                Jsonb({"ef_search": EF_SEARCH}),
            ],
        )
        put_documents(connection, kb_id, given, BATCH)


def wait(connection, ranks, kb_id: str, limit: float) -> None:
    for rank in ranks:
        as_tenant(connection, rank)
        connection.execute("SELECT kb.wait(%s, %s)", [kb_id, limit])


def as_tenant(connection, rank: int) -> None:
    connection.execute("SELECT set_config('kb.tenant', %s, false)", [f"t{rank}"])


def until_indexed(server: Server, connection, sizes: list[int], limit: float) -> None:
    # What is large has moved out of the shared table.
    # kb counts now and then: one that is barely large enough may stay.
    expected = sum(size >= 1.2 * MIN_ROWS for size in sizes) + sum(sizes[rank - 1] >= MIN_ROWS for rank in PROBES)
    begun = time.monotonic()
    # The indexer takes statistics after an index.
    while connection.execute(INDEXES).fetchone()[0] < expected or server.processes("kb indexer"):
        if time.monotonic() - begun > limit:
            raise TimeoutError(f"no {expected} valid HNSW indexes {limit:.0f} s after the last document was ready")
        time.sleep(0.1)


def measure(server: Server, connection, report: Report, rank: int, size: int, vectors: list[Vector]) -> list[float]:
    """One line, p50 against p50, of one tenant's reader. The recall of each side."""
    kb_ids = ("shared", "own")
    with server.connect(DATABASE) as reader:
        adapt_vectors(reader)
        as_tenant(reader, rank)
        reader.execute("SET ROLE bench_reader")
        sql = [f"SELECT {query.COLUMNS} FROM kb.query_vector('{kb_id}', %s, {TOP_K})" for kb_id in kb_ids]
        times, rows = query.side_by_side(reader, [(statement, vectors) for statement in sql], WARM_UP)
    if any(len(found) != TOP_K for side in rows for found in side):
        raise AssertionError(f"some queries of tenant t{rank} returned other than {TOP_K} rows")
    shared, own = (median(side) for side in times)
    what = f"one of {TENANTS} tenants in a shared table, {size:,} of {server.options.chunks:,} chunks, p50"
    report.compare(what, shared, own, "its own table", 1.5)
    return [recall(connection, rank, kb_id, vectors[WARM_UP:], side) for kb_id, side in zip(kb_ids, rows)]


def recall(connection, rank: int, kb_id: str, vectors: list[Vector], answers: list) -> float:
    """The part of the nearest chunks that the answers have."""
    table, build_no = connection.execute(
        "SELECT 'kb.' || quote_ident(b.table_name), b.build_no FROM kb.builds b JOIN kb.knowledge_bases k USING (kb_no)"
        " WHERE k.tenant_id = %s AND k.id = %s AND b.state = 'live'",
        [f"t{rank}", kb_id],
    ).fetchone()
    exact = EXACT.format(table=table, build_no=build_no, top_k=TOP_K)
    nearest = [{row[0] for row in connection.execute(exact, [vector]).fetchall()} for vector in vectors]
    found = sum(len({row[0] for row in answer} & true) for answer, true in zip(answers, nearest))
    return found / (TOP_K * len(vectors))
