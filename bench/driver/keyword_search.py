"""Questions of five words, common ones among them, by BM25, against PostgreSQL's own full text search; and hybrid answers
against their two legs."""

import time
from random import Random
from statistics import median

from psycopg.types.json import Jsonb

from report import Report, percentile
from server import Server, put_documents
from texts import Writer

DATABASE = "bench_keyword"
WORDS, TOP_K, QUERIES, WARM_UP = 150, 10, 100, 20
# Of them by hand, each of which takes hundreds of milliseconds.
BY_HAND_QUERIES = 30
BATCH = 1_000
# Milliseconds, by the number of chunks up to which they hold.
TARGETS = ((50_000, 10.0), (500_000, 40.0))
HYBRID = 1.1
# Each leg of a hybrid answer looks for so many.
LEG = 100
BY_KB = "SELECT chunk_id, content, rank_score FROM kb.query('bench', %s, {top_k}, mode => '{mode}')"
# Segments, and chunks that are in none.
STATE = "SELECT (SELECT count(*) FROM kb.bm25_segments), (SELECT count(*) FROM kb.bm25_pending p, unnest(p.chunk_ids))"
BY_HAND = f"""
SELECT id, body, ts_rank_cd(words, q) AS rank FROM by_hand, CAST(replace(plainto_tsquery('english', %s)::text, '&', '|') AS tsquery) q
WHERE words @@ q ORDER BY rank DESC LIMIT {TOP_K}"""


def run(server: Server, report: Report) -> None:
    chunks = server.options.keyword_chunks
    connection = server.fresh(DATABASE)
    connection.execute("SET statement_timeout = 0")
    connection.execute(f"ALTER DATABASE {DATABASE} SET maintenance_work_mem = '{64 + chunks * 3 // 1000}MB'")
    connection.execute(
        "SELECT kb.create_knowledge_base('bench', embedder => 'hash', chunking => %s)", [Jsonb({"strategy": "none"})]
    )
    begun = time.monotonic()
    fill(connection, chunks)
    # Every chunk has its vector; words were folded while documents came, and not all segments are merged yet.
    connection.execute("SELECT kb.wait('bench', %s)", [600 + chunks / 50])
    parts, waiting = connection.execute(STATE).fetchone()
    questions = five_words(QUERIES + WARM_UP)
    by_words = BY_KB.format(mode="keyword", top_k=TOP_K)
    (in_parts,) = side_by_side(server.connect(DATABASE), [by_words], questions)
    wait(server, connection, chunks)
    segments, _ = connection.execute(STATE).fetchone()
    report.note(
        f"keyword: {chunks:,} chunks of {WORDS} words in {segments} segments, made and indexed in {time.monotonic() - begun:.0f} s"
    )
    connection.execute(
        "CREATE TABLE by_hand AS SELECT row_number() OVER () AS id, content AS body, to_tsvector('english', content) AS words FROM kb.chunks"
    )
    connection.execute("CREATE INDEX ON by_hand USING gin (words)")
    connection.execute("VACUUM ANALYZE")
    connection.execute("CHECKPOINT")
    asked = (("keyword", TOP_K), ("hybrid", TOP_K), ("dense", LEG), ("keyword", LEG))
    sides = [BY_KB.format(mode=mode, top_k=top_k) for mode, top_k in asked]
    # The side by hand reads so much that what comes after it finds nothing in the processor's caches: it is measured alone.
    times = side_by_side(server.connect(DATABASE), sides, questions)
    times += side_by_side(server.connect(DATABASE), [BY_HAND], questions[:BY_HAND_QUERIES])
    (at_rest,) = side_by_side(server.connect(DATABASE), [by_words], questions)
    keyword, hybrid, by_meaning, by_keyword, by_hand = (median(side) for side in times)
    target = next((ms for most, ms in TARGETS if chunks <= most), None)
    report.add(
        f"kb.query by words p50, {chunks:,} chunks, five words, top_k {TOP_K}",
        f"{keyword:.2f} ms",
        f"{by_hand:.2f} ms (GIN, ts_rank_cd)",
        f"{keyword / by_hand:.2f}",
        f"<= {target:g} ms" if target else "",
        keyword <= target if target else None,
    )
    report.add("  p95", f"{percentile(times[0], 95):.2f} ms", f"{percentile(times[4], 95):.2f} ms")
    what = f"  p50 right after ingestion, {parts} segments and {waiting:,} chunks in none, before the indexer is done"
    report.compare(what, median(in_parts), median(at_rest), f"at rest, {segments} segments", 2)
    legs = f"by meaning {by_meaning:.2f}, by words {by_keyword:.2f}"
    report.compare(f"  hybrid p50, against its legs, {LEG} candidates each", hybrid, by_meaning + by_keyword, legs, HYBRID)
    server.drop(connection)


def fill(connection, chunks: int) -> None:
    writer = Writer(11)
    for first in range(0, chunks, BATCH):
        documents = [
            Jsonb({"external_id": str(i), "content": " ".join(writer.words(WORDS, i)), "content_type": "text/plain"})
            for i in range(first, min(first + BATCH, chunks))
        ]
        put_documents(connection, "bench", documents)


def wait(server: Server, connection, chunks: int) -> None:
    """Until every chunk has its vector, the index is there, and words are folded and merged."""
    limit = 600 + chunks / 50
    connection.execute("SELECT kb.wait('bench', %s)", [limit])
    begun, before = time.monotonic(), None
    while True:
        now = connection.execute(
            "SELECT (SELECT count(*) FROM kb.bm25_pending p, unnest(p.chunk_ids)) / 256, array_agg(segment_no ORDER BY segment_no) FROM kb.bm25_segments"
        ).fetchone()
        indexed = connection.execute("SELECT indexed FROM kb.status").fetchone()[0]
        if indexed and now[0] == 0 and now == before and not server.processes("kb indexer"):
            return
        if time.monotonic() - begun > limit:
            raise TimeoutError("the indexes are not built")
        before = now
        time.sleep(3)


def five_words(count: int) -> list[str]:
    """Two of the most common words, one less common, two of a topic."""
    writer = Writer(12)
    questions = []
    for i in range(count):
        words = writer.chance.sample(writer.common[:50], 2) + writer.chance.sample(writer.common[50:1_000], 1)
        words += writer.chance.sample(writer.topics[i % len(writer.topics)], 2)
        writer.chance.shuffle(words)
        questions.append(" ".join(words))
    return questions


def side_by_side(connection, sides: list[str], questions: list[str]) -> list[list[float]]:
    """Milliseconds of each side over all questions, in an order that changes: who comes first finds less in caches."""
    times, chance = [[] for _ in sides], Random(5)
    for i, question in enumerate(questions):
        for side in chance.sample(range(len(sides)), len(sides)):
            begun = time.perf_counter()
            connection.execute(sides[side], [question], prepare=True, binary=True).fetchall()
            if i >= WARM_UP:
                times[side].append((time.perf_counter() - begun) * 1000)
    connection.close()
    return times
