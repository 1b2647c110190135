"""An attached table: what it adds to the user's own statements, against the same table without it, taking turns."""

import time

from report import Report, percentile
from server import Server
from texts import Writer

ROWS = 100_000
UPDATES = 400
DELETED = 1_000
CHUNKS = 10


def run(server: Server, report: Report) -> None:
    connection = server.fresh("bench_tables")
    writer = Writer(12)
    bulk_insert(connection, report, writer)
    updates(connection, report, writer)
    deletes(connection, report, writer)
    server.drop(connection)


def create(connection, name: str, attached: bool) -> None:
    connection.execute(f"DROP TABLE IF EXISTS {name}")
    connection.execute(
        f"CREATE TABLE {name} (id bigint PRIMARY KEY, title text, body text, status text, views int DEFAULT 0)"
    )
    if attached:
        connection.execute("SELECT kb.create_knowledge_base(%s, embedder => 'hash')", [name])
        connection.execute("SELECT kb.attach_table(%s, %s::regclass, '{title, body}')", [name, name])


def bulk_insert(connection, report: Report, writer: Writer) -> None:
    """100,000 rows of 1 kB in one statement, rolled back, so that the worker does not run beside."""
    body = " ".join(writer.paragraph(40, i) for i in range(8))[:1000]
    create(connection, "bulk", True)
    create(connection, "bulk_plain", False)
    # What PostgreSQL takes for any trigger that sees the rows of a statement: it copies them.
    create(connection, "bulk_empty", False)
    connection.execute(
        "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
        "CREATE TRIGGER t AFTER INSERT ON bulk_empty REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION nothing()"
    )
    times = {"bulk": [], "bulk_plain": [], "bulk_empty": []}
    for _ in range(9):
        for table, seconds in times.items():
            begun = time.monotonic()
            with connection.transaction(force_rollback=True):
                connection.execute(
                    f"INSERT INTO {table} SELECT i, 'Title ' || i, %s, 'published' FROM generate_series(1, {ROWS}) i",
                    [body],
                )
                seconds.append(time.monotonic() - begun)
            connection.execute(f"VACUUM {table}")
    ours, theirs, empty = (min(times[table]) for table in ("bulk", "bulk_plain", "bulk_empty"))
    report.compare(f"INSERT of {ROWS:,} rows of 1 kB, table attached", ours, theirs, "not attached", 1.25, unit="s")
    report.compare("  an empty trigger with a transition table", empty, theirs, "no trigger", unit="s")


def updates(connection, report: Report, writer: Writer) -> None:
    """Single-row updates with a commit each: of the text, and of a column that is not read."""
    for table, attached in (("edits", True), ("edits_plain", False)):
        create(connection, table, attached)
        connection.execute(
            f"INSERT INTO {table} SELECT i, 'Title ' || i, %s, 'published' FROM generate_series(1, 2000) i",
            [writer.paragraph(60, 1)],
        )
    connection.execute("SELECT kb.wait('edits', 300)")
    for what, column, most in (
        ("UPDATE of the text of a row", "body = body || '.'", 1.35),
        ("UPDATE of a column that is not read", "views = views + 1", 1.05),
    ):
        times = {"edits": [], "edits_plain": []}
        for i in range(UPDATES):
            for table, seconds in times.items():
                begun = time.monotonic()
                connection.execute(f"UPDATE {table} SET {column} WHERE id = %s", [i + 1], prepare=True)
                seconds.append((time.monotonic() - begun) * 1000)
        connection.execute("SELECT kb.wait('edits', 300)")
        ours, theirs = percentile(times["edits"], 50), percentile(times["edits_plain"], 50)
        report.compare(f"{what}, table attached, p50", ours, theirs, "not attached", most, form=".3f")


def deletes(connection, report: Report, writer: Writer) -> None:
    """DELETE of 1,000 published rows of 10 chunks each, which are in no answer once it has committed."""
    connection.execute(
        "CREATE TABLE gone (id bigint PRIMARY KEY, body text);"
        "SELECT kb.create_knowledge_base('gone', embedder => 'hash', chunking => '{\"size\": 40, \"overlap\": 0}')"
    )
    text = " ".join(writer.paragraph(28, i) for i in range(CHUNKS))
    connection.execute(
        "INSERT INTO gone SELECT i, %s || i FROM generate_series(1, %s) i", [text, 3 * DELETED]
    )
    connection.execute("SELECT kb.attach_table('gone', 'gone', 'body')")
    connection.execute("SELECT kb.wait('gone', 600)")
    chunks = connection.execute("SELECT count(*) FROM kb.chunks c JOIN kb.documents d USING (document_id) WHERE d.kb_id = 'gone'")
    each = chunks.fetchone()[0] / (3 * DELETED)
    begun = time.monotonic()
    connection.execute("DELETE FROM gone WHERE id <= %s", [DELETED])
    took = time.monotonic() - begun
    found = connection.execute(
        "SELECT count(*) FROM kb.query('gone', %s, 200) WHERE external_id::int <= %s", [text, DELETED]
    ).fetchone()[0]
    if found:
        raise AssertionError(f"{found} rows that were deleted are answered")
    connection.execute("SELECT kb.wait('gone', 600)")
    report.add(
        f"DELETE of {DELETED:,} published rows of {each:.0f} chunks each",
        f"{took:.3f} s",
        "",
        "",
        "<= 1 s",
        took <= 1,
    )
