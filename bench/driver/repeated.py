"""Texts that repeat themselves: answers by meaning and by words against the index itself, and hybrid answers against their two legs.

Made-up texts, of which a share occurs 2 to 50 times; with HTML=dir the pages of a directory. By hand is what the index gives, ids and
distances of copies, too, without their texts."""

import json
import time
from pathlib import Path
from random import Random
from statistics import median

import psycopg
from psycopg.types.json import Jsonb

import ingest
import keyword_search
from query import vectors_of_each
from report import Report, percentile, say
from server import Server, adapt_vectors, put_documents
from texts import Writer

DATABASE = "bench_repeated"
WORDS, BATCH = 150, 500
# One text in so many occurs more than once.
REPEATED = 10
QUERIES, WARM_UP, RECALL_OVER = 120, 20, 40
LEG = 100
# By hand the index is searched with the least of these that finds as much as kb.
EF_SEARCH = (40, 50, 60, 80, 100, 120, 150, 200, 250, 300, 400)
BY_MEANING, HYBRID, BY_WORDS = 1.3, 1.25, 1.2
BY_KB = "SELECT chunk_id, content, score FROM kb.query('bench', %s, {top_k}, min_score => -1, mode => '{mode}')"
BY_HAND = "SELECT v.chunk_id, v.embedding <=> %s AS distance FROM {table} v WHERE {segment} ORDER BY distance LIMIT {top_k}"
# How far away the last of the nearest is: chunks, and texts, of which kb answers each once.
FARTHEST = "SELECT max(n.distance) FROM (SELECT (v.embedding <=> %s) + 0 AS distance FROM {table} v ORDER BY 1 LIMIT {top_k}) n"
FARTHEST_TEXT = """
SELECT max(n.distance) FROM (
    SELECT min((v.embedding <=> %s) + 0) AS distance FROM {table} v JOIN kb.chunks c USING (build_no, chunk_id)
    GROUP BY c.content_hash ORDER BY 1 LIMIT {top_k}) n"""
AS_NEAR = "SELECT count(*) FROM {table} v WHERE v.chunk_id = ANY (%s) AND (v.embedding <=> %s) + 0 <= %s"
# A server with pg_textsearch, which is a module of PostgreSQL 17 and later.
TEXTSEARCH = "SELECT id FROM bench_texts ORDER BY body <@> to_bm25query(%s, 'bench_texts_body') LIMIT {top_k}"


def run(server: Server, report: Report) -> None:
    connection = server.fresh(DATABASE)
    connection.execute("SET statement_timeout = 0")
    connection.execute(f"ALTER DATABASE {DATABASE} SET maintenance_work_mem = '1GB'")
    html = Path(server.options.html) if server.options.html else None
    chunking = {"strategy": "recursive", "size": 200, "overlap": 0} if html else {"strategy": "none"}
    connection.execute("SELECT kb.create_knowledge_base('bench', embedder => 'hash', chunking => %s)", [Jsonb(chunking)])
    begun = time.monotonic()
    if html:
        fill_with_pages(connection, html)
    else:
        fill(connection, server.options.repeated_chunks)
    keyword_search.wait(server, connection, 100_000)
    server.await_indexes(connection, 900)
    connection.execute("VACUUM ANALYZE")
    chunks, texts = connection.execute("SELECT count(*), count(DISTINCT content_hash) FROM kb.chunks").fetchone()
    report.note(
        f"repeated: {chunks:,} chunks, {1 - texts / chunks:.0%} of them copies, {html or 'made up'},"
        f" made and indexed in {time.monotonic() - begun:.0f} s; by hand ids and distances, kb with texts, each once"
    )
    asked = questions(connection, bool(html))
    ef_search = by_meaning(server, report, asked)
    other = textsearch(server.options.pg_textsearch, connection) if server.options.pg_textsearch else None
    by_words(server, report, other, asked)
    hybrid(server, report, other, asked, ef_search)
    if other:
        other.close()
    server.drop(connection)


def fill(connection, chunks: int) -> None:
    """Texts that are there 2 to 50 times lie between others."""
    writer, chance = Writer(21), Random(22)
    documents: list[dict] = []
    for i in range(chunks):
        text = " ".join(writer.words(WORDS, i))
        copies = chance.randint(2, 50) if i % (REPEATED * 26) < REPEATED else 1
        documents += [{"external_id": f"{i}.{n}", "content": text, "content_type": "text/plain"} for n in range(copies)]
        if len(documents) >= chunks:
            break
    chance.shuffle(documents)
    put_documents(connection, "bench", documents[:chunks], BATCH)


def fill_with_pages(connection, directory: Path) -> None:
    pages = sorted(path for path in directory.rglob("*.html") if path.is_file())
    if not pages:
        raise FileNotFoundError(f"no *.html in {directory}")
    documents = (
        {"external_id": str(path.relative_to(directory)), "content": path.read_text(errors="replace").replace("\0", ""), "content_type": "text/html"}
        for path in pages
    )
    put_documents(connection, "bench", [document for document in documents if document["content"].strip()], BATCH)


def questions(connection, is_real: bool) -> list[str]:
    """Eight words of a chunk, one after the other in real texts; half of the chunks are copies of others."""
    rows = connection.execute(
        "SELECT content FROM (SELECT content, content_hash, count(*) OVER (PARTITION BY content_hash) > 1 AS is_copied,"
        " row_number() OVER (PARTITION BY content_hash) AS n FROM kb.chunks) c WHERE n = 1"
        " ORDER BY is_copied, md5(content)"
    ).fetchall()
    texts, chance = [text for (text,) in rows if len(text.split()) >= 20], Random(23)
    half = (QUERIES + WARM_UP) // 2
    asked = []
    for text in texts[:half] + texts[-half:]:
        words = text.split()
        start = chance.randrange(len(words) - 8)
        asked.append(" ".join(words[start : start + 8]).replace('"', " ").replace("-", " ") if is_real else " ".join(chance.sample(words, 8)))
    chance.shuffle(asked)
    return asked


def prepared(server: Server, ef_search: int | None = None):
    connection = server.connect(DATABASE, prepares=True)
    adapt_vectors(connection)
    connection.execute("LOAD 'vector'")
    if ef_search:
        connection.execute(f"SET hnsw.ef_search = {ef_search}")
    return connection


def in_turn(sides, warm_up: int = WARM_UP):
    """Milliseconds and rows of sides, each a connection, a statement and its arguments, in an order that changes."""
    times, rows, chance = [[] for _ in sides], [[] for _ in sides], Random(5)
    for i in range(len(sides[0][2])):
        for side in chance.sample(range(len(sides)), len(sides)):
            connection, sql, arguments = sides[side]
            begun = time.perf_counter()
            found = connection.execute(sql, [arguments[i]], prepare=True, binary=True).fetchall()
            if i >= warm_up:
                times[side].append((time.perf_counter() - begun) * 1000)
                rows[side].append(found)
    return times, rows


def hand(connection) -> dict[str, str]:
    table = ingest.vector_table(connection)
    segments = connection.execute(
        "SELECT coalesce(pg_get_expr(i.indpred, i.indrelid), 'true') FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
        " JOIN pg_am a ON a.oid = c.relam AND a.amname = 'hnsw' WHERE i.indisvalid AND i.indrelid = %s::regclass",
        [table],
    ).fetchall()
    if len(segments) != 1:
        raise AssertionError(f"{len(segments)} segments; one can be compared")
    return {"table": table, "segment": segments[0][0]}


def by_meaning(server: Server, report: Report, asked: list[str]) -> int:
    """The ef_search of a leg by hand: that by which it finds as much as kb."""
    with prepared(server) as own:
        vectors = vectors_of_each(own, "hash", asked)
        parts = hand(own)
        for top_k in (10, LEG):
            by_kb, by_hand = BY_KB.format(top_k=top_k, mode="dense"), BY_HAND.format(top_k=top_k, **parts)
            kb_recall = recall_of_kb(own, parts, top_k, by_kb, asked, vectors)
            with prepared(server) as other:
                ef_search, hand_recall = equal_recall(other, parts, top_k, by_hand, vectors, kb_recall)
                plan = other.execute("EXPLAIN " + by_hand, [vectors[0]]).fetchall()
                if not any("_hnsw" in line for (line,) in plan):
                    raise AssertionError("the statement by hand does not use the index")
                times, _ = in_turn([(own, by_kb, asked), (other, by_hand, vectors)])
            kb, hand_ms = (median(t) for t in times)
            what = f"kb.query by meaning where texts repeat, p50, top_k {top_k}"
            report.compare(what, kb, hand_ms, f"ef_search {ef_search}", BY_MEANING)
            report.add("  p95", f"{percentile(times[0], 95):.2f} ms", f"{percentile(times[1], 95):.2f} ms")
            report.add(
                f"  recall@{top_k} against an exact scan (kb: of different texts)",
                f"{kb_recall:.3f}",
                f"{hand_recall:.3f}",
                f"{kb_recall - hand_recall:+.3f}",
            )
        explained = [own.execute("SELECT kb.explain('bench', %s, 100)", [text]).fetchone()[0] for text in asked[:20]]
        scans = [scan for e in explained for scan in e["dense"]["scans"]]
        report.note(f"repeated: 20 questions of {LEG} rows made {len(scans)} scans, which gave {median(s['given'] for s in scans):.0f} rows each")
    return ef_search


def recall_of_kb(own, parts: dict[str, str], top_k: int, by_kb: str, asked: list[str], vectors: list) -> float:
    """What is as near as the last of the exact scan's is found: which of several is all the same, here and by hand."""
    found = 0
    for text, vector in list(zip(asked, vectors))[WARM_UP:][:RECALL_OVER]:
        (farthest,) = own.execute(FARTHEST_TEXT.format(top_k=top_k, **parts), [vector]).fetchone()
        chunks = [row[0] for row in own.execute(by_kb, [text]).fetchall()]
        found += own.execute(AS_NEAR.format(**parts), [chunks, vector, farthest]).fetchone()[0]
    return found / top_k / RECALL_OVER


def equal_recall(other, parts: dict[str, str], top_k: int, by_hand: str, vectors: list, wanted: float) -> tuple[int, float]:
    """Sets the least ef_search that finds as much as is wanted, or the largest; and how much it finds."""
    compared = vectors[WARM_UP:][:RECALL_OVER]
    farthest = [other.execute(FARTHEST.format(top_k=top_k, **parts), [vector]).fetchone()[0] for vector in compared]
    for ef_search in EF_SEARCH:
        other.execute(f"SET hnsw.ef_search = {ef_search}")
        found = 0
        for vector, last in zip(compared, farthest):
            found += sum(row[1] <= last for row in other.execute(by_hand, [vector]).fetchall())
        recall = found / top_k / RECALL_OVER
        if recall >= wanted:
            break
    return ef_search, recall


def by_words(server: Server, report: Report, other, asked: list[str]) -> None:
    """`other`: a connection to pg_textsearch, where there is a server with it."""
    with prepared(server) as own:
        sides = [(own, BY_KB.format(top_k=top_k, mode="keyword"), asked) for top_k in (10, LEG)]
        if other:
            sides += [(other, TEXTSEARCH.format(top_k=top_k), asked) for top_k in (10, LEG)]
        medians = [median(t) for t in in_turn(sides)[0]]
    for at, (top_k, target) in enumerate(((10, BY_WORDS), (LEG, None))):
        what = f"kb.query by words where texts repeat, p50, top_k {top_k}"
        if other:
            report.compare(what, medians[at], medians[at + 2], "pg_textsearch", target)
        else:
            report.add(what, f"{medians[at]:.2f} ms", "pg_textsearch is not given")


def textsearch(conninfo: str, source):
    """A connection to a server with pg_textsearch, with the same texts under a BM25 index."""
    other = psycopg.connect(conninfo, autocommit=True)
    other.execute("CREATE EXTENSION IF NOT EXISTS pg_textsearch")
    other.execute("DROP TABLE IF EXISTS bench_texts")
    other.execute("CREATE TABLE bench_texts (id uuid, body text)")
    with other.cursor() as cursor, cursor.copy("COPY bench_texts FROM STDIN") as copy:
        for row in source.execute("SELECT chunk_id, content FROM kb.chunks").fetchall():
            copy.write_row(row)
    other.execute("CREATE INDEX bench_texts_body ON bench_texts USING bm25 (body) WITH (text_config = 'english')")
    other.execute("VACUUM ANALYZE bench_texts")
    return other


def hybrid(server: Server, report: Report, other, asked: list[str], ef_search: int) -> None:
    with prepared(server) as own, prepared(server, ef_search) as by_hand:
        vectors = vectors_of_each(own, "hash", asked)
        by_words = (other, TEXTSEARCH.format(top_k=LEG)) if other else (own, BY_KB.format(top_k=LEG, mode="keyword"))
        sides = [
            (own, BY_KB.format(top_k=10, mode="hybrid"), asked),
            (by_hand, BY_HAND.format(top_k=LEG, **hand(own)), vectors),
            (*by_words, asked),
        ]
        both, meaning, words = (median(t) for t in in_turn(sides)[0])
        what = f"kb.query hybrid where texts repeat, p50, top_k 10, against two legs of {LEG}"
        legs = f"by hand {meaning:.2f}, {'pg_textsearch' if other else 'kb by words'} {words:.2f}"
        report.compare(what, both, meaning + words, legs, HYBRID)
        explained = own.execute("SELECT kb.explain('bench', %s, 10, mode => 'hybrid')", [asked[0]]).fetchone()[0]
        say("  " + json.dumps({part: explained[part] for part in ("milliseconds", "rows")}))
