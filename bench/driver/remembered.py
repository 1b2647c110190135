"""Memories of many subjects, as an agent asks them: what is known of one user. Against a plain table with vectors and words, which is
asked by the SQL that one would write. No figure contains the time of an embedding: all questions were asked before, so that the gateway
has their vectors, and the SQL by hand is given the vectors."""

import time
from statistics import median

from psycopg.types.json import Jsonb

import query
from report import Report, percentile
from server import Server, adapt_vectors
from texts import Writer

DATABASE, MEMORY = "bench_remembered", "bench"
SUBJECTS, WORDS, BATCH, TOP_K = 1_000, 12, 1_000, 10
# Rounds over the questions; the best median counts, because a machine may be slower for some seconds.
QUESTIONS, ROUNDS = 100, 3
# Calls with one fact, with a commit each.
ALONE = 60
# Milliseconds at p50, by the number of memories up to which they hold.
TARGETS = ((10_000, 5.0), (1_000_000, 10.0))
# The least rate of the last eighth of the memories, as a part of that of the first.
STEADY = 0.8
# Vectors of `hash` have small similarities, so min_score is 0: all ten rows are made.
BY_KB = f"SELECT * FROM kb.recall('{MEMORY}', %(question)s, {TOP_K}, 0, subject => %(subject)s, mode => %(mode)s)"
TABLE = (
    "CREATE TABLE by_hand (id bigint PRIMARY KEY, tenant_id text NOT NULL, subject text NOT NULL, fact text NOT NULL,"
    " confidence double precision, tags text[], metadata jsonb, created_at timestamptz, valid_from timestamptz,"
    " valid_to timestamptz, expires_at timestamptz, access_count bigint, last_accessed_at timestamptz,"
    " words tsvector, embedding vector(384))"
)
COPY = """
INSERT INTO by_hand
SELECT d.document_id, d.tenant_id, m.subject, d.content, m.confidence, m.tags, d.metadata, m.created_at, m.valid_from, m.valid_to,
       m.expires_at, m.access_count, m.last_accessed_at, to_tsvector('english', d.content), v.embedding
FROM kb.memory_entries m JOIN kb.documents d USING (document_id) JOIN kb.chunks c USING (document_id)
JOIN {table} v ON v.build_no = c.build_no AND v.chunk_id = c.chunk_id ORDER BY d.document_id"""
# What holds of a subject is found by the index on the subject: by meaning and by words, fused by ranks.
HOLDS = (
    "subject = %(subject)s AND valid_from <= now() AND (valid_to IS NULL OR valid_to > now())"
    " AND (expires_at IS NULL OR expires_at > now())"
)
BY_HAND = f"""
WITH near AS (
    SELECT id, distance, row_number() OVER (ORDER BY distance) AS place FROM (
        SELECT id, embedding <=> %(vector)s AS distance FROM by_hand WHERE {HOLDS} ORDER BY distance LIMIT 100) n),
worded AS (
    SELECT id, row_number() OVER (ORDER BY rank DESC) AS place FROM (
        SELECT id, ts_rank_cd(words, q) AS rank
        FROM by_hand, CAST(replace(plainto_tsquery('english', %(question)s)::text, '&', '|') AS tsquery) q
        WHERE {HOLDS} AND words @@ q ORDER BY rank DESC LIMIT 100) w)
SELECT b.id, b.subject, b.fact, 1 - near.distance AS score, b.confidence, b.tags, b.metadata, b.created_at, b.valid_from,
       b.valid_to, b.access_count, b.last_accessed_at
FROM near FULL JOIN worded USING (id) JOIN by_hand b USING (id)
ORDER BY coalesce(1.0 / (60 + near.place), 0) + coalesce(1.0 / (60 + worded.place), 0) DESC LIMIT {TOP_K}"""


def run(server: Server, report: Report) -> None:
    memories = server.options.memories
    connection = server.fresh(DATABASE)
    connection.execute("SET statement_timeout = 0")
    connection.execute(f"ALTER DATABASE {DATABASE} SET maintenance_work_mem = '{64 + memories * 3 // 1000}MB'")
    connection.execute(
        "DO $$BEGIN CREATE ROLE bench_reader IN ROLE kb_reader; EXCEPTION WHEN duplicate_object THEN END$$"
    )
    in_a_transaction(connection, report)
    connection.execute("SELECT kb.create_memory(%s, 'hash')", [MEMORY])
    alone = [remember_alone(connection, "first")]
    fill(connection, report, memories)
    begun = time.monotonic()
    server.await_indexes(connection, 600 + memories / 100, MEMORY)
    indexed = time.monotonic() - begun
    # Autovacuum is off: nothing but kb has looked at the tables by now.
    given = questions(connection)
    (early,) = measure(server, [BY_KB], given)
    alone.append(remember_alone(connection, "last"))
    connection.execute("SELECT kb.set_quota('', memory_entries => %s)", [2 * memories])
    alone.append(remember_alone(connection, "limited"))
    connection.execute("VACUUM ANALYZE")
    make_by_hand(connection)
    connection.execute("CHECKPOINT")
    recall(server, report, memories, given, early)
    first, last, limited = alone
    report.compare(f"kb.remember of one fact with a commit, beside {memories:,}, p50", last, first, "in an empty memory", 1.5)
    report.compare("  under a quota", limited, last, "without one", 1.5)
    report.note(f"remembered: the indexes were built and merged {indexed:.0f} s after the last memory was ready")
    server.drop(connection)


def in_a_transaction(connection, report: Report) -> None:
    """One fact after the other, into an empty memory, without statistics. It is rolled back."""
    took = {}
    for count in (1_000, 10_000):
        with connection.transaction(force_rollback=True):
            connection.execute("SELECT kb.create_memory('rolled back', 'hash')")
            begun = time.perf_counter()
            for i in range(count):
                connection.execute("SELECT kb.remember('rolled back', %s, %s)", [f"fact {i}", subject(i)])
            took[count] = time.perf_counter() - begun
    ratio = took[10_000] / took[1_000]
    report.add(
        "kb.remember 10,000 times in a transaction",
        f"{took[10_000]:.2f} s",
        f"{took[1_000]:.2f} s (1,000 times)",
        f"{ratio:.1f}",
        "<= 12",
        ratio <= 12,
    )


def fill(connection, report: Report, memories: int) -> None:
    """Remembers facts of all subjects in turn, so that those of one are spread over the tables, and waits until they are ready."""
    writer, times, begun = Writer(21), [], time.perf_counter()
    # Making the texts is no part of the rate.
    made = 0.0
    for first in range(0, memories, BATCH):
        making = time.perf_counter()
        facts = [
            Jsonb({"fact": " ".join(writer.words(WORDS, i)) + f" {i}.", "subject": subject(i)})
            for i in range(first, min(first + BATCH, memories))
        ]
        made += time.perf_counter() - making
        putting = time.perf_counter()
        connection.execute("SELECT count(*) FROM kb.remember(%s, %b)", [MEMORY, facts])
        times.append(time.perf_counter() - putting)
    connection.execute("SELECT kb.wait(%s, 7200)", [MEMORY])
    seconds = time.perf_counter() - begun - made
    (entries,) = connection.execute("SELECT count(*) FROM kb.memory_entries").fetchone()
    if entries != memories + ALONE:
        raise AssertionError(f"there are {entries} entries, not {memories + ALONE}")
    part = max(1, len(times) // 8)
    steady = median(times[:part]) / median(times[-part:])
    report.add(
        f"kb.remember of {memories:,} facts, {BATCH:,} a call, to ready",
        f"{memories / seconds:,.0f}/s",
        f"calls {BATCH / median(times):,.0f}/s",
        f"last eighth beside the first {steady:.2f}",
        f">= {STEADY}",
        steady >= STEADY,
    )


def subject(number: int) -> str:
    return f"user:{number % SUBJECTS}"


def remember_alone(connection, name: str) -> float:
    """p50 of calls with a commit each."""
    times = []
    for i in range(ALONE if name == "first" else ALONE // 2):
        begun = time.perf_counter()
        connection.execute("SELECT kb.remember(%s, %s, %s)", [MEMORY, f"the {name} fact is {i}", f"somebody:{i}"])
        times.append((time.perf_counter() - begun) * 1000)
    connection.execute("SELECT kb.wait(%s, 120)", [MEMORY])
    return median(times[10:])


def questions(connection) -> list[dict]:
    """Each about a subject. From now on the gateway knows their vectors."""
    texts = query.questions(QUESTIONS, seed=22)
    vectors = query.vectors_of_each(connection, "hash", texts)
    return [
        {"question": text, "vector": vector, "subject": subject(7 * i), "mode": "hybrid"}
        for i, (text, vector) in enumerate(zip(texts, vectors))
    ]


def make_by_hand(connection) -> None:
    (table,) = connection.execute("SELECT 'kb.' || quote_ident(table_name) FROM kb.builds WHERE state = 'live'").fetchone()
    for statement in (
        TABLE,
        COPY.format(table=table),
        "CREATE INDEX ON by_hand (subject)",
        "CREATE INDEX ON by_hand USING gin (words)",
        # As kb's tables have it.
        "ALTER TABLE by_hand ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY tenant_read ON by_hand USING (tenant_id = ANY ((SELECT kb.readable_tenants())::text[]))",
        "GRANT SELECT ON by_hand TO bench_reader",
        "VACUUM ANALYZE by_hand",
    ):
        connection.execute(statement)


def recall(server: Server, report: Report, memories: int, given: list[dict], early: float) -> None:
    target = next((ms for most, ms in TARGETS if memories <= most), None)

    def line(what: str, kb: float, hand: float | None = None) -> None:
        beside = (f"{hand:.2f} ms", f"{kb / hand:.2f}") if hand else ("", "")
        report.add(what, f"{kb:.2f} ms", *beside, *((f"<= {target:g} ms", kb <= target) if target else ()))

    kb, hand = measure(server, [BY_KB, BY_HAND], given)
    line(f"kb.recall of one subject, {memories:,} memories of {SUBJECTS:,} subjects, p50", kb, hand)
    line("  before the first VACUUM and ANALYZE", early)
    line("  as a kb_reader, under row-level security", *measure(server, [BY_KB, BY_HAND], given, "bench_reader"))
    line("  p95", *measure(server, [BY_KB, BY_HAND], given, percent=95))
    legs = [
        measure(server, [BY_KB], [{**question, "mode": mode} for question in given])[0] for mode in ("keyword", "dense")
    ]
    report.add("  by words; by meaning, p50", "; ".join(f"{leg:.2f} ms" for leg in legs))
    (of_all,) = measure(server, [BY_KB], [{**question, "subject": None} for question in given])
    report.add("  of all subjects, p50", f"{of_all:.2f} ms")
    report.note(
        f"remembered: {QUESTIONS} questions of ten words, {TOP_K} rows each, hybrid with 100 candidates on both sides, taking turns, planned"
        f" each time; the best of {ROUNDS} rounds; by hand a table with indexes on subject and words, whose vectors need no index here"
    )


def measure(server: Server, sides: list[str], given: list[dict], role: str = "", percent: int = 50) -> list[float]:
    """Milliseconds of each side, which take turns; each goes first as often as the other. The best of some rounds."""
    best = [float("inf")] * len(sides)
    with server.connect(DATABASE) as connection:
        adapt_vectors(connection)
        connection.execute("LOAD 'vector'")
        connection.execute("SET jit = off")
        if role:
            connection.execute(f"SET ROLE {role}")
        for number in range(ROUNDS + 1):
            times: list[list[float]] = [[] for _ in sides]
            for i, question in enumerate(given):
                for j in range(len(sides)):
                    side = (i + j) % len(sides)
                    begun = time.perf_counter()
                    rows = connection.execute(sides[side], question, binary=True).fetchall()
                    times[side].append((time.perf_counter() - begun) * 1000)
                    # The words of a question need not be in what is known of a subject.
                    if len(rows) != TOP_K and question["mode"] != "keyword":
                        raise AssertionError(f"{len(rows)} rows instead of {TOP_K}: {sides[side][:40]}")
            # The first round warms up.
            if number > 0:
                best = [min(least, percentile(side, percent)) for least, side in zip(best, times)]
    return best
