"""Many knowledge bases and tenants, one row at a time: what has no work costs nothing.

Embedder hash and one shared vector table throughout, so that what is measured is the database's side."""

import time

from psycopg.types.json import Jsonb

from report import Report, percentile
from server import Server, cpu_seconds
from texts import Writer

TENANTS = 2_000
COMMITS = 60


def run(server: Server, report: Report) -> None:
    connection = server.fresh("bench_many")
    # Without an HNSW index: what is inserted into one costs more than all that is measured here.
    connection.execute("SELECT kb.create_vector_db('shared', 'pgvector', 384, config => '{\"min_rows\": 1000000000}')")
    create(connection, "one", 1)
    writer = Writer(11)
    one = commits_to_found(connection, writer)
    in_a_transaction(connection, report, writer)
    commit_alone(connection, report, writer)
    idle_ones = server.options.knowledge_bases
    create(connection, "idle", idle_ones)
    many = commits_to_found(connection, writer)
    what = f"commit to found, one of {idle_ones:,} knowledge bases, p50"
    report.compare(what, percentile(many, 50), percentile(one, 50), "the only one", 1.5, form=".1f")
    idle(connection, report)
    drain(connection, report, writer)
    server.drop(connection)


def create(connection, prefix: str, count: int) -> None:
    connection.execute(
        "SELECT kb.create_knowledge_base(%s || i, embedder => 'hash', vector_db => 'shared')"
        " FROM generate_series(1, %s) AS i",
        [prefix, count],
    )


def commits_to_found(connection, writer: Writer) -> list[float]:
    """Milliseconds from the commit of one document to the query that finds it."""
    seconds = []
    for i in range(COMMITS + 5):
        text = writer.paragraph(40, i)
        connection.execute("SELECT kb.put_document('one1', %s, %s)", [f"d{i}", text])
        begun = time.monotonic()
        while not connection.execute(
            "SELECT true FROM kb.query('one1', %s, 1) WHERE external_id = %s", [text, f"d{i}"]
        ).fetchone():
            if time.monotonic() - begun > 120:
                raise AssertionError(f"document d{i} is not found within 120 s")
        seconds.append((time.monotonic() - begun) * 1000)
    # The first ones start the worker and make plans.
    return seconds[5:]


def in_a_transaction(connection, report: Report, writer: Writer) -> None:
    """put_document one by one in one transaction, without statistics."""
    took = {}
    for count in (1_000, 10_000):
        kb_id = f"puts{count}"
        connection.execute("SELECT kb.create_knowledge_base(%s, embedder => 'hash', vector_db => 'shared')", [kb_id])
        text = writer.paragraph(20, count)
        begun = time.monotonic()
        with connection.transaction(force_rollback=True):
            for i in range(count):
                connection.execute("SELECT kb.put_document(%s, %s, %s)", [kb_id, f"d{i}", text], prepare=True)
        took[count] = time.monotonic() - begun
    ratio = took[10_000] / took[1_000]
    report.add(
        "put_document 10,000 times in a transaction",
        f"{took[10_000]:.2f} s",
        f"{took[1_000]:.2f} s (1,000 times)",
        f"{ratio:.1f}",
        "<= 12",
        ratio <= 12,
    )


def commit_alone(connection, report: Report, writer: Writer) -> None:
    """put_document with a commit each, against an INSERT of the same text; taking turns."""
    connection.execute("CREATE TABLE plain (id text PRIMARY KEY, content text)")
    text = writer.paragraph(40, 1)
    ours, theirs = [], []
    for i in range(500):
        for statement, arguments, times in (
            ("SELECT kb.put_document('one1', %s, %s)", [f"c{i}", text], ours),
            ("INSERT INTO plain VALUES (%s, %s)", [f"c{i}", text], theirs),
        ):
            begun = time.monotonic()
            connection.execute(statement, arguments, prepare=True)
            times.append((time.monotonic() - begun) * 1000)
    connection.execute("SELECT kb.wait('one1', 120)")
    over = percentile(ours, 50) - percentile(theirs, 50)
    report.add(
        "put_document with a commit each, p50",
        f"{percentile(ours, 50):.2f} ms",
        f"{percentile(theirs, 50):.2f} ms (INSERT)",
        f"+{over:.2f} ms",
        "<= 0.5 ms",
        over <= 0.5,
    )


def idle(connection, report: Report) -> None:
    """What the worker uses while nothing changes."""
    connection.execute("SELECT kb.put_document('one1', 'last', 'Wakes the worker.')")
    connection.execute("SELECT kb.wait('one1', 60)")
    time.sleep(1)
    # Of this database: the launcher starts one in each of the others now and then.
    workers = of_database(connection)
    if not workers:
        raise AssertionError("the worker has left")
    before, begun = sum(map(cpu_seconds, workers)), time.monotonic()
    time.sleep(4)
    if of_database(connection) != workers:
        raise AssertionError("the worker has left while it was looked at")
    part = (sum(map(cpu_seconds, workers)) - before) / (time.monotonic() - begun)
    report.add("an idle worker, part of a core", f"{part:.1%}", "", "", "< 1 %", part < 0.01)


def of_database(connection) -> list[int]:
    return [
        pid
        for (pid,) in connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'kb worker' AND datname = current_database()"
        )
    ]


def drain(connection, report: Report, writer: Writer) -> None:
    """One document in each of many tenants, against as many in one knowledge base: documents a second."""
    texts = [writer.paragraph(40, i) for i in range(TENANTS)]
    with connection.transaction():
        for tenant in range(TENANTS):
            connection.execute("SELECT set_config('kb.tenant', %s, true)", [f"t{tenant}"], prepare=True)
            create(connection, "k", 1)
    rates = []
    for turn in range(2):
        with connection.transaction():
            for tenant, text in enumerate(texts):
                connection.execute("SELECT set_config('kb.tenant', %s, true)", [f"t{tenant}"], prepare=True)
                connection.execute("SELECT kb.put_document('k1', 'd', %s)", [f"{text} {turn}"], prepare=True)
        many = until_drained(connection)
        connection.execute(
            "SELECT count(*) FROM kb.put_documents('one1', %s::jsonb[])",
            [[Jsonb({"external_id": f"drain{i}", "content": f"{text} of one {turn}"}) for i, text in enumerate(texts)]],
        )
        rates.append((TENANTS / many, TENANTS / until_drained(connection)))
    many, one = max(rate for rate, _ in rates), max(rate for _, rate in rates)
    report.add(
        f"one document in each of {TENANTS:,} tenants, processed",
        f"{many:,.0f}/s",
        f"{one:,.0f}/s (in one knowledge base)",
        f"{many / one:.2f}",
        ">= 0.8",
        many / one >= 0.8,
    )


def until_drained(connection) -> float:
    begun = time.monotonic()
    while connection.execute("SELECT EXISTS (SELECT FROM kb.jobs)").fetchone()[0]:
        if time.monotonic() - begun > 300:
            raise AssertionError("the jobs are not done within 300 s")
        time.sleep(0.005)
    return time.monotonic() - begun
