"""Conversations: what kb.append_turn takes beside a plain INSERT into a table with the same columns and indexes, and kb.window of a long
conversation beside the SELECT that one would write."""

import time
from statistics import median
from uuid import uuid4

from psycopg.types.json import Jsonb

from report import Report, percentile
from server import Server
from texts import Writer

DATABASE = "bench_conversations"
# Turns of the long conversation, and of each of the others beside it.
TURNS, OTHERS, EACH = 10_000, 1_000, 10
WORDS, APPENDED, ASKED, WARM_UP = 25, 300, 200, 20
# Rounds, of which the best median counts.
ROUNDS = 3
# Milliseconds: of an append beyond a plain INSERT, and of a window.
BEYOND, WINDOW = 0.5, 3.0
# The most that a turn may take at the end of a long conversation, as a multiple of what it takes at its beginning.
STEADY = 1.2
APPEND = "SELECT kb.append_turn('long', 'user', %(text)s)"
INSERT = """
INSERT INTO plain (tenant_id, id, conversation_id, parent_id, branch_no, depth, role, content, token_count, total_tokens)
VALUES ('', %(id)s, 'long', %(parent)s, %(branch)s, %(depth)s, 'user', %(content)s, %(tokens)s, %(total)s)"""
BY_KB = "SELECT turn_id, role, content, tool_calls, tool_call_id, token_count FROM kb.window('long', %s)"
BY_HAND = """
SELECT id, role, content, tool_calls, tool_call_id, token_count FROM (
    SELECT * FROM plain WHERE tenant_id = '' AND conversation_id = 'long' ORDER BY turn_no DESC LIMIT %s) t
ORDER BY turn_no"""
# More tokens than the conversation has.
ALL = 2_000_000_000


def run(server: Server, report: Report) -> None:
    connection = server.fresh(DATABASE)
    connection.execute(
        "DO $$BEGIN CREATE ROLE bench_reader IN ROLE kb_reader; EXCEPTION WHEN duplicate_object THEN END$$"
    )
    writer = Writer(23)
    fill(connection, report, writer)
    connection.execute("CREATE TABLE plain (LIKE kb.turns INCLUDING ALL)")
    connection.execute("INSERT INTO plain SELECT * FROM kb.turns ORDER BY turn_no")
    connection.execute("GRANT SELECT ON plain TO bench_reader")
    connection.execute("ANALYZE plain")
    # Autovacuum is off: kb's tables have no statistics yet.
    early = window_of(server, [(BY_KB, None)])[0]
    append(connection, report, writer, "")
    connection.execute("VACUUM ANALYZE")
    append(connection, report, writer, ", after VACUUM and ANALYZE")
    window(server, report, early)
    server.drop(connection)


def said(writer: Writer, number: int) -> str:
    return " ".join(writer.words(WORDS, number)) + "."


def fill(connection, report: Report, writer: Writer) -> None:
    """Appends all turns but the first ones to a long conversation in one transaction, without statistics."""
    connection.execute("SELECT kb.create_conversation('long')")
    connection.execute("SELECT count(kb.create_conversation('other ' || i)) FROM generate_series(1, %s) i", [OTHERS])
    texts, times = [said(writer, i) for i in range(TURNS)], []
    with connection.transaction():
        for text in texts:
            begun = time.perf_counter()
            connection.execute(APPEND, {"text": text})
            times.append((time.perf_counter() - begun) * 1000)
    connection.execute(
        "SELECT count(kb.append_turn('other ' || i, 'user', %s)) FROM generate_series(1, %s) j, generate_series(1, %s) i",
        [texts[0], EACH, OTHERS],
    )
    part = TURNS // 10
    first, last = median(times[:part]), median(times[-part:])
    what = f"kb.append_turn {TURNS:,} times in a transaction, p50 of the last {part:,}"
    report.compare(what, last, first, f"of the first {part:,}", STEADY, form=".3f")


def append(connection, report: Report, writer: Writer, when: str) -> None:
    """With a commit each, taking turns."""
    (tokens, branch, depth, total, parent) = connection.execute(
        "SELECT token_count, branch_no, depth, total_tokens, id FROM plain WHERE conversation_id = 'long' ORDER BY turn_no DESC LIMIT 1"
    ).fetchone()
    best = None
    for _ in range(ROUNDS):
        kb, hand = [], []
        for i in range(APPENDED):
            text = said(writer, i)
            row = {"id": f"turn_{uuid4().hex}", "parent": parent, "branch": branch, "depth": depth + 1, "content": Jsonb(text)}
            row |= {"tokens": len(text) // 4, "total": total + len(text) // 4}
            sides = [(APPEND, {"text": text}, kb), (INSERT, row, hand)]
            for statement, arguments, times in sides if i % 2 else reversed(sides):
                begun = time.perf_counter()
                connection.execute(statement, arguments)
                times.append((time.perf_counter() - begun) * 1000)
            parent, depth, total = row["id"], row["depth"], row["total"]
        found = (percentile(kb, 50), percentile(hand, 50))
        best = min(best or found, found, key=lambda pair: pair[0] - pair[1])
    over = best[0] - best[1]
    report.add(
        f"kb.append_turn with a commit each, p50{when}",
        f"{best[0]:.2f} ms",
        f"{best[1]:.2f} ms (INSERT)",
        f"{over:+.2f} ms",
        f"<= {BEYOND} ms",
        over <= BEYOND,
    )


def window(server: Server, report: Report, early: float) -> None:
    with server.connect(DATABASE) as connection:
        (size,) = connection.execute("SELECT count(*) FROM kb.window('long')").fetchone()
        (all_turns,) = connection.execute("SELECT count(*) FROM kb.turns WHERE conversation_id = 'long'").fetchone()
    default, whole = [(BY_KB, None), (BY_HAND, size)], [(BY_KB, ALL), (BY_HAND, all_turns)]

    def line(what: str, kb: float, hand: float | None = None) -> None:
        beside = (f"{hand:.2f} ms", f"{kb / hand:.2f}") if hand else ("", "")
        report.add(what, f"{kb:.2f} ms", *beside, f"<= {WINDOW:g} ms", kb <= WINDOW)

    line(f"kb.window of {size} turns (8,000 tokens) of {all_turns:,}, p50", *window_of(server, default))
    line("  before the first VACUUM and ANALYZE", early)
    line("  as a kb_reader, under row-level security", *window_of(server, default, "bench_reader"))
    kb, hand = window_of(server, whole, asked=20)
    report.compare("  of all turns, p50", kb, hand)


def window_of(server: Server, sides: list[tuple[str, int | None]], role: str = "", asked: int = ASKED) -> list[float]:
    """p50 of each side, which take turns: the best of some rounds."""
    best = [float("inf")] * len(sides)
    with server.connect(DATABASE) as connection:
        if role:
            connection.execute(f"SET ROLE {role}")
        for _ in range(ROUNDS):
            times, counts = [[] for _ in sides], set()
            for i in range(asked + WARM_UP):
                for j in range(len(sides)):
                    side = (i + j) % len(sides)
                    sql, argument = sides[side]
                    begun = time.perf_counter()
                    rows = connection.execute(sql, [argument], binary=True).fetchall()
                    if i >= WARM_UP:
                        times[side].append((time.perf_counter() - begun) * 1000)
                    counts.add(len(rows))
            if len(counts) != 1 or 0 in counts:
                raise AssertionError(f"the sides have different numbers of rows: {counts}")
            best = [min(least, median(side)) for least, side in zip(best, times)]
    return best
