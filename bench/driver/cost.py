"""Cost against size: nothing grows faster than n log n.

The pure modules are measured by a program of their own (tests/cost), every input by itself at 1, 2, 4 and 8 times a
size, in as many processes as there are cores: that takes minutes of processor time and is part of `make bench-full`, while `make test`
has the same inputs (tests/cost). The whole table goes into .scratch/cost.md, the worst of each kind into the report. What needs a server
(filters, metadata, calls with many values) is measured here, and part of `make bench`.
"""

import json
import math
import os
import subprocess
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from psycopg.types.json import Jsonb

from report import Report, say
from server import Server

TIMES = (1, 2, 4, 8)
# From a size to its eightfold n log n grows less than tenfold and n² 64-fold; what is between is noise.
MOST = 20.0
# Seconds below which a time says nothing.
SHORTEST = 0.002
TABLE = Path(__file__).parents[2] / ".scratch" / "cost.md"
HEAD = """# Cost against size

Seconds of processor time, on a development build, {seconds:.0f} in all. MISSED: grows more than
20-fold from n to 8 n, and from there on more than 7-fold for each four times the size, until all windows
are full (n log n grows less than 10-fold and 5-fold, n² 64-fold and 16-fold).

"""
HEADER = ["work", "input", "n", "2 n", "4 n", "8 n", "bytes of memory a byte", "exponent", "", ""]


def run(server: Server, report: Report) -> None:
    """What needs a server."""
    tell(report, served(server))


def run_modules(server: Server, report: Report) -> None:
    """The pure modules."""
    if not server.options.cost:
        raise AssertionError("no program to measure the pure modules (--cost)")
    rows, seconds = pure(server.options.cost)
    tell(report, rows)
    write(TABLE, rows, seconds)
    say(f"written to {TABLE}")


def tell(report: Report, rows: list[list[str]]) -> None:
    by_work = defaultdict(list)
    for row in rows:
        by_work[row[0]].append(row)
    for work, inputs in by_work.items():
        worst = max(inputs, key=lambda row: float(row[5]) / max(float(row[2]), SHORTEST))
        missed = [row for row in inputs if row[8].startswith("MISSED")]
        most = max((int(row[6]) for row in inputs if row[6]), default=None)
        report.add(
            f"cost of {work}: {len(inputs)} inputs, the worst: {worst[1]}",
            f"{float(worst[2]) * 1000:.1f} ms -> {float(worst[5]) * 1000:.1f} ms at 8 times the size",
            "",
            f"exponent {worst[7]}" + (f", {most} bytes of memory a byte at most" if most is not None else ""),
            "no faster than n log n",
            not missed,
        )
        for row in missed:
            if row is not worst:
                report.note(f"cost of {work}, {row[1]}: {row[2]} s -> {row[5]} s")


def write(file: Path, rows: list[list[str]], seconds: float) -> None:
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in [HEADER, *rows]]
    lines.insert(1, "|" + "---|" * len(HEADER))
    file.write_text(HEAD.format(seconds=seconds) + "\n".join(lines) + "\n")


def pure(program: str) -> tuple[list[list[str]], float]:
    """The rows, and the processor time that they took."""
    parts = len(os.sched_getaffinity(0))

    def measure(part: int) -> list[str]:
        return subprocess.run([program, "--part", f"{part + 1}/{parts}"], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()

    before = os.times()
    with ThreadPoolExecutor(parts) as pool:
        outputs = list(pool.map(measure, range(parts)))
    after = os.times()
    lines = [""] * sum(map(len, outputs))
    for part, output in enumerate(outputs):
        lines[part::parts] = output
    rows = [(line.split("\t") + [""] * len(HEADER))[: len(HEADER)] for line in lines]
    return rows, after.children_user + after.children_system - before.children_user - before.children_system


def served(server: Server) -> list[list[str]]:
    connection = server.fresh("bench_cost")
    connection.execute("SELECT kb.create_knowledge_base('k', 'hash')")
    rows = []

    def measure(work: str, name: str, size: int, call) -> None:
        """`call(size)` prepares the arguments, and returns the function that is timed."""
        seconds = []
        for times in TIMES:
            run_it = call(size * times)
            best = math.inf
            for _ in range(3):
                begun = time.perf_counter()
                run_it()
                best = min(best, time.perf_counter() - begun)
            seconds.append(best)
        exponent = math.log2(seconds[3] / seconds[0]) / 3
        verdict = "ok" if seconds[3] <= MOST * max(seconds[0], SHORTEST) else "MISSED"
        rows.append([work, name, *(f"{s:.4f}" for s in seconds), "", f"{exponent:.2f}", verdict, ""])

    def ask(filter_: dict):
        query = "SELECT count(*) FROM kb.query('k', 'what is it?', 5, filter => %s)"
        return lambda: connection.execute(query, [Jsonb(filter_)]).fetchone()

    def put(metadata: dict):
        counter = iter(range(1_000_000))
        return lambda: connection.execute(
            "SELECT kb.put_document('k', 'm' || %s, 'a text', %s)", [next(counter), Jsonb(metadata)]
        )

    def deep(levels: int) -> dict:
        return json.loads('{"a":' * levels + "1" + "}" * levels)

    measure("metadata", "many keys", 2000, lambda n: put({f"key {i}": i for i in range(n)}))
    measure("metadata", "a long list", 5000, lambda n: put({"list": list(range(n))}))
    measure("metadata", "nested", 12, lambda n: put(deep(n)))
    connection.execute("SELECT kb.wait('k', 300)")
    connection.execute("SELECT kb.put_document('k', 'wide', 'a text', %s)", [Jsonb({f"k{i}": i for i in range(1000)})])
    connection.execute("SELECT kb.wait('k', 300)")
    measure("filters", "many keys", 120, lambda n: ask({f"k{i}": i for i in range(n)}))
    measure("filters", "a long list", 100, lambda n: ask({"list": list(range(n))}))
    measure("filters", "nested", 12, lambda n: ask(deep(n)))

    def documents(n: int):
        made = [Jsonb({"external_id": f"d{i}", "content": f"document {i}"}) for i in range(n)]

        def call():
            with connection.transaction(force_rollback=True):
                connection.execute("SELECT count(*) FROM kb.put_documents('k', %b)", [made]).fetchone()

        return call

    def values(function: str, n: int):
        texts = [f"text {i}" for i in range(n)]
        return lambda: connection.execute(f"SELECT count(*) FROM {function}", [texts]).fetchone()

    def words(function: str, n: int):
        return lambda: connection.execute(f"SELECT count(*) FROM {function}", ["a word. " * n]).fetchone()

    measure("calls", "kb.put_documents, of so many", 250, documents)
    measure("calls", "kb.embed of so many texts", 500, lambda n: values("kb.embed('hash', %s)", n))
    measure("calls", "kb.embed of a long text", 15_000, lambda n: words("kb.embed('hash', ARRAY[%s])", n))
    measure("calls", "kb.count_tokens", 15_000, lambda n: words("kb.count_tokens(%s, 'minilm')", n))
    measure("calls", "kb.chunk", 15_000, lambda n: words("kb.chunk(%s, embedder => 'hash')", n))
    server.drop(connection)
    return rows
