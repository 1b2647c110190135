"""Editing one paragraph of a 1,000-chunk document: how many texts are embedded."""

from psycopg.types.json import Jsonb

from report import Report
from server import Server
from texts import Writer

CHUNKS = 1_000


def run(server: Server, report: Report) -> None:
    connection = server.fresh("bench_edit")
    for strategy in ("recursive", "markdown"):
        worst, chunks, edits = edits_of(connection, strategy)
        report.add(
            f"texts embedded by one edit, {strategy}, {chunks:,} chunks",
            ", ".join(f"{what} {most}" for what, most in worst.items()),
            "",
            f"most of {edits} edits",
            "<= 3",
            max(worst.values()) <= 3,
        )
    connection.close()


def edits_of(connection, strategy: str):
    """The most of each kind of edit, at the start, the end and places between; chunks; edits made."""
    kb_id, writer = strategy, Writer(6)
    connection.execute(
        "SELECT kb.create_knowledge_base(%s, embedder => 'hash', chunking => %s)",
        [kb_id, Jsonb({"strategy": strategy, "size": 100})],
    )
    paragraphs = []
    # Of many lengths, so that what fits into a chunk shifts with every edit.
    for i in range(1_450):
        heading = f"## Part {i}\n\n" if strategy == "markdown" and i % 8 == 0 else ""
        paragraphs.append(heading + writer.paragraph(writer.chance.randint(5, 90), i // 20))

    def put() -> None:
        connection.execute(
            "SELECT kb.put_document(%s, 'book', %s, content_type => %s)",
            [kb_id, "\n\n".join(paragraphs), "text/markdown" if strategy == "markdown" else "text/plain"],
        )
        connection.execute("SELECT kb.wait(%s, 120)", [kb_id])

    table = vector_table(connection, kb_id)

    def vectors() -> set:
        # With xmin: a vector made again under the same chunk_id is a text embedded again.
        return set(connection.execute(f"SELECT chunk_id, xmin::text FROM {table}").fetchall())

    put()
    before = vectors()
    chunks = len(before)
    if chunks < CHUNKS:
        raise AssertionError(f"the document makes {chunks} chunks, not {CHUNKS}")
    worst = {"replace": 0, "insert": 0, "delete": 0}
    edits = 0
    for place in (0.0, 0.17, 0.37, 0.5, 0.73, 0.99, 1.0):
        for what in worst:
            i = round(place * (len(paragraphs) - 1))
            if what == "replace":
                paragraphs[i] = writer.paragraph(40, i)
            elif what == "insert":
                paragraphs.insert(i, writer.paragraph(55, i))
            else:
                del paragraphs[i]
            put()
            after = vectors()
            ready, total = connection.execute(
                "SELECT ready, chunks FROM kb.status WHERE kb_id = %s", [kb_id]
            ).fetchone()
            if (ready, total) != (1, len(after)):
                raise AssertionError(f"after {what}: ready {ready}, {total} chunks, {len(after)} vectors")
            worst[what] = max(worst[what], len(after - before))
            before, edits = after, edits + 1
    return worst, chunks, edits


def vector_table(connection, kb_id: str) -> str:
    return connection.execute(
        "SELECT 'kb.' || quote_ident(b.table_name) FROM kb.builds b JOIN kb.knowledge_bases k USING (kb_no)"
        " WHERE k.id = %s AND b.state = 'live'",
        [kb_id],
    ).fetchone()[0]
