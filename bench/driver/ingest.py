"""Ingestion of 20,000 chunks to ready and indexed, against COPY of the same rows and the same index by hand."""

import json
import time

from psycopg.types.json import Jsonb

from report import Report
from server import Server, put_documents
from texts import Writer

DOCUMENTS, CHUNKS_EACH, BATCH = 1_000, 20, 100
# Of put and process, and of COPY; the last one builds the indexes, too.
ROUNDS = 3
DATABASE = "bench"
# A paragraph each: 90 to 115 words and their full stops.
CHUNKING = {"strategy": "recursive", "size": 140, "overlap": 0}


def documents() -> list[dict]:
    writer = Writer(1)
    return [
        {
            "external_id": f"document-{i:05}",
            "title": f"Document {i}",
            "metadata": {"shelf": i % 10},
            "content": "\n\n".join(writer.paragraph(writer.chance.randint(90, 115), i) for _ in range(CHUNKS_EACH)),
            "content_type": "text/plain",
        }
        for i in range(DOCUMENTS)
    ]


def create_knowledge_base(connection) -> None:
    connection.execute(
        "SELECT kb.create_knowledge_base('bench', embedder => 'hash', chunking => %s)", [Jsonb(CHUNKING)]
    )


def index_definition(connection) -> str | None:
    row = connection.execute(
        "SELECT pg_get_indexdef(i.indexrelid) FROM kb.builds b JOIN pg_index i ON i.indrelid = ('kb.' || b.table_name)::regclass"
        " JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam AND a.amname = 'hnsw'"
        " WHERE b.state = 'live' AND i.indisvalid"
    ).fetchone()
    # By hand it is for all rows.
    return row and row[0].split(" WHERE ")[0]


def by_kb(server: Server, given: list[dict], to_index: bool = True):
    """Seconds of putting, processing and, if it is waited for that, indexing; the connection to what was made."""
    connection = server.fresh(DATABASE)
    create_knowledge_base(connection)
    connection.execute("CHECKPOINT")
    # Ready texts, sent in binary (%b), as the rows of COPY are: as text, psycopg would escape each.
    ready_made = [Jsonb(json.dumps(document), dumps=str) for document in given]
    begun = time.perf_counter()
    put_documents(connection, "bench", ready_made, BATCH)
    put = time.perf_counter()
    connection.execute("SELECT kb.wait('bench', 500)")
    ready = time.perf_counter()
    while to_index and not index_definition(connection):
        if time.perf_counter() - ready > 300:
            raise TimeoutError("no valid HNSW index 300 s after the last document was ready")
        time.sleep(0.02)
    indexed = time.perf_counter()
    status = connection.execute("SELECT ready, chunks, vectors FROM kb.status WHERE kb_id = 'bench'").fetchone()
    expected = (DOCUMENTS, DOCUMENTS * CHUNKS_EACH, DOCUMENTS * CHUNKS_EACH)
    if status != expected:
        raise AssertionError(f"documents, chunks, vectors are {status}, not {expected}")
    return (put - begun, ready - put, indexed - ready), connection


def vector_table(connection) -> str:
    return connection.execute("SELECT 'kb.' || quote_ident(table_name) FROM kb.builds WHERE state = 'live'").fetchone()[
        0
    ]


def hand_table(connection) -> str:
    """A copy of the vectors with one HNSW index, as somebody would have it by hand, with the policies of kb's."""
    table = vector_table(connection)
    (m, ef_construction), = connection.execute(
        "SELECT config->>'m', config->>'ef_construction' FROM kb.builds WHERE state = 'live'"
    ).fetchall()
    connection.execute("SET maintenance_work_mem = '2GB'")
    for statement in (
        "DROP TABLE IF EXISTS public.by_hand",
        f"CREATE TABLE public.by_hand (LIKE {table} INCLUDING STORAGE)",
        f"INSERT INTO public.by_hand SELECT * FROM {table}",
        "ALTER TABLE public.by_hand ADD PRIMARY KEY (build_no, chunk_id)",
        "CREATE INDEX by_hand_index ON public.by_hand USING hnsw (embedding vector_cosine_ops)"
        f" WITH (m = {m}, ef_construction = {ef_construction})",
        "ALTER TABLE public.by_hand ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY tenant_read ON public.by_hand USING (tenant_id = ANY ((SELECT kb.readable_tenants())::text[]))",
        "VACUUM ANALYZE public.by_hand",
    ):
        connection.execute(statement)
    connection.execute("RESET maintenance_work_mem")
    return "public.by_hand"


def export(connection) -> dict[str, bytes]:
    """The rows of each table, in their physical order."""
    rows = {}
    for table in ("kb.documents", "kb.chunks", vector_table(connection)):
        with connection.cursor().copy(f"COPY {table} TO STDOUT (FORMAT binary)") as copy:
            rows[table] = b"".join(copy)
    return rows


def by_hand(server: Server, rows: dict[str, bytes], definition: str | None):
    """Seconds of COPY of each table (a transaction each) and of the index, if there is to be one."""
    connection = server.fresh("bench_hand")
    create_knowledge_base(connection)
    connection.execute("CHECKPOINT")
    begun, times = time.perf_counter(), []
    for table, content in rows.items():
        with connection.cursor().copy(f"COPY {table} FROM STDIN (FORMAT binary)") as copy:
            for i in range(0, len(content), 1 << 20):
                copy.write(content[i : i + (1 << 20)])
        times.append(time.perf_counter())
    if definition:
        connection.execute(definition)
    times.append(time.perf_counter())
    vectors = connection.execute(f"SELECT count(*) FROM {vector_table(connection)}").fetchone()[0]
    if vectors != DOCUMENTS * CHUNKS_EACH:
        raise AssertionError(f"COPY made {vectors} vectors")
    server.drop(connection)
    return [end - start for start, end in zip([begun, *times], times)]


def bench_database(server: Server):
    """A connection to the database of 20,000 chunks, which is made if no benchmark has made it yet."""
    if "bench" not in server.shared:
        server.shared["bench"] = by_kb(server, documents())[1]
    return server.shared["bench"]


def settle(connection) -> None:
    """What autovacuum does within a minute or so; it is off here, so that no figure depends on when."""
    for table in ("kb.documents", "kb.chunks", vector_table(connection)):
        connection.execute(f"VACUUM ANALYZE {table}")


def run(server: Server, report: Report) -> None:
    given = documents()
    ours, theirs = [], []
    for i in range(ROUNDS):
        is_last = i + 1 == ROUNDS
        times, connection = by_kb(server, given, is_last)
        ours.append(times)
        rows, definition = export(connection), index_definition(connection) if is_last else None
        if is_last:
            server.shared["bench"] = connection
        else:
            # With its worker and indexer, which would take part of the machine.
            server.drop(connection)
        theirs.append(by_hand(server, rows, definition))
    kb, hand = ours[-1], theirs[-1]
    ratio = sum(kb) / sum(hand)
    report.add(
        "ingest 20,000 chunks, hash, to ready and indexed",
        f"{sum(kb):.1f} s (put {kb[0]:.1f}, process {kb[1]:.1f}, index {kb[2]:.1f})",
        f"{sum(hand):.1f} s (copy {sum(hand[:3]):.1f}, index {hand[3]:.1f})",
        f"{ratio:.2f}",
        "<= 1.2",
        ratio <= 1.2,
    )
    # The best of each by this measure, whichever round that was.
    kb, copied = min(put + process for put, process, _ in ours), min(sum(seconds[:3]) for seconds in theirs)
    report.compare("  put and process alone, without the index, against COPY of the same rows", kb, copied, most=1.6, unit="s")
    rounds = "; ".join(f"{sum(a[:2]):.2f} against {sum(b[:3]):.2f} s" for a, b in zip(ours, theirs))
    report.note(
        f"ingest: put and process of documents as JSON texts, sent in binary, and COPY, the best of {ROUNDS} rounds of each ({rounds}); documents, chunks, vectors copied in"
        f" {hand[0]:.1f}, {hand[1]:.1f}, {hand[2]:.1f} s, binary, a transaction each, into the tables with all constraints and indexes but"
        f" HNSW; by hand CREATE INDEX, by kb CREATE INDEX CONCURRENTLY"
    )
