"""Memory: a backend through its first kb.query, the gateway with MiniLM, the worker under 100 MB of text."""

from concurrent.futures import ThreadPoolExecutor

from psycopg.types.json import Jsonb

import ingest
import model
import query
import remote
from report import Report
from server import Sampler, Server, adapt_vectors, memory_kb
from texts import Writer

# What is left of 300 MB beside PostgreSQL's default of shared buffers, which are larger here.
WORKER = 300 - 128
# A hundred megabytes of text, as many documents and as a few of the largest that kb.max_document_size allows.
SHAPES = ((200, 500_000, 10), (10, 10_000_000, 1))


def run(server: Server, report: Report) -> None:
    backend(server, report)
    gateway(server, report)


def run_worker(server: Server, report: Report) -> None:
    with ThreadPoolExecutor(1) as pool:
        rated = pool.submit(remote.rate, server, report)
        for shape in SHAPES:
            worker(server, report, *shape)
        rated.result()


def backend(server: Server, report: Report) -> None:
    connection = ingest.bench_database(server)
    ingest.settle(connection)
    table = ingest.hand_table(connection)
    vector = query.vectors_of(connection, "hash", ["what is it?"])[0]

    def growth(sql: str, argument) -> float:
        """Megabytes that a new backend grows by."""
        with server.connect(ingest.DATABASE) as fresh:
            adapt_vectors(fresh)
            pid = fresh.info.backend_pid
            # Its own memory: pages of shared buffers that it is the first to touch are no growth.
            before = memory_kb(pid, "RssAnon")
            if len(fresh.execute(sql, [argument]).fetchall()) != query.TOP_K:
                raise AssertionError(f"other than {query.TOP_K} rows: {sql}")
            return (memory_kb(pid, "RssAnon") - before) / 1024

    kb = growth(f"SELECT {query.COLUMNS} FROM kb.query('bench', %s, {query.TOP_K})", "what is it?")
    hand = growth(query.BY_HAND.format(table=table, top_k=query.TOP_K), vector)
    report.add(
        "a backend's growth through its first kb.query", f"{kb:.1f} MB", f"{hand:.1f} MB", "", "< 10 MB", kb < 10
    )


def gateway(server: Server, report: Report) -> None:
    if "minilm worked" not in server.shared:
        connection = server.fresh("bench_model")
        chunks = model.batches(server, connection)["chunks of 256 tokens"]
        model.embed(connection, "minilm", [content for content, _ in chunks[: model.BATCH]])
        connection.close()
    pid = server.processes("kb gateway")[0]
    rss, peak, own = (memory_kb(pid, field) / 1024 for field in ("VmRSS", "VmHWM", "RssAnon"))
    report.add(
        "the gateway with MiniLM, at its most",
        f"{peak:.0f} MB",
        "",
        f"now {rss:.0f} MB, {own:.0f} of it its own",
        "< 400 MB",
        peak < 400,
    )


def worker(server: Server, report: Report, documents: int, size: int, batch_size: int) -> None:
    connection = server.fresh("bench_memory")
    # No index: its memory is another process's and bounded by maintenance_work_mem.
    connection.execute("SELECT kb.create_vector_db('bulk', 'pgvector', 384, config => '{\"min_rows\": 1000000}')")
    connection.execute("SELECT kb.create_knowledge_base('bulk', embedder => 'hash', vector_db => 'bulk')")
    writer = Writer(5)
    stock = [writer.paragraph(writer.chance.randint(30, 150), i) for i in range(5_000)]
    with Sampler(server, "kb worker") as sampler:
        for i in range(0, documents, batch_size):
            batch = [
                Jsonb({"external_id": f"{j}.txt", "content": text(writer, stock, j, size)})
                for j in range(i, i + batch_size)
            ]
            connection.execute("SELECT count(*) FROM kb.put_documents('bulk', %b)", [batch])
        connection.execute("SELECT kb.wait('bulk', 550)")
    ready, chunks = connection.execute("SELECT ready, chunks FROM kb.status WHERE kb_id = 'bulk'").fetchone()
    if ready != documents or sampler.samples == 0:
        raise AssertionError(f"{ready} of {documents} documents ready, {sampler.samples} samples of the worker")
    own, high = (sampler.peak[field] / 1024 for field in ("RssAnon", "VmHWM"))
    report.add(
        f"the worker ingesting {documents} documents of {size / 1e6:g} MB, at its most",
        f"{own:.0f} MB of its own",
        "",
        f"{high:.0f} MB with shared buffers and code",
        f"< {WORKER} MB",
        own < WORKER,
    )
    report.note(
        f"memory: {documents} documents of {size / 1e6:g} MB gave {chunks:,} chunks; {sampler.samples} looks at the worker"
    )
    server.drop(connection)


def text(writer: Writer, stock: list[str], number: int, size: int) -> str:
    """Paragraphs that are in no other document, a little less than `size` bytes of them."""
    paragraphs, length = [], 0
    while True:
        paragraph = f"{len(paragraphs)} of {number}: {writer.chance.choice(stock)}"
        length += len(paragraph) + 2
        if length > size:
            return "\n\n".join(paragraphs)
        paragraphs.append(paragraph)
