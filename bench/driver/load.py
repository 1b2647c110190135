"""kb load of many small files, against kb.put_documents by hand of the same files over one connection."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

from psycopg.types.json import Jsonb

from report import Report
from server import Server, put_documents
from texts import Writer

FILES, WORDS, BATCH = 10_000, 120, 100
ROUNDS = 3
# Of the rate of put_documents by hand.
LEAST = 0.9


def run(server: Server, report: Report) -> None:
    folder = Path(server.options.files) / "load"
    write_files(folder)
    ours, theirs, again = [], [], []
    for _ in range(ROUNDS):
        theirs.append(by_hand(server, folder))
        loaded, unchanged = by_program(server, folder)
        ours.append(loaded)
        again.append(unchanged)
    kb, hand = min(ours), min(theirs)
    ratio = hand / kb
    report.add(
        f"kb load of {FILES:,} files of {size_of(folder) / FILES / 1000:.1f} kB",
        f"{FILES / kb:,.0f} files/s",
        f"{FILES / hand:,.0f} files/s (put_documents)",
        f"{ratio:.2f}",
        f">= {LEAST}",
        ratio >= LEAST,
    )
    report.add("  the same again, with nothing to send", f"{min(again):.2f} s", "", f"{FILES / min(again):,.0f} files/s")
    rounds = "; ".join(f"{a:.2f} against {b:.2f} s" for a, b in zip(ours, theirs))
    report.note(
        f"kb load: from the start of the program to its end, 4 connections; by hand: files are read and put in batches of {BATCH} over one"
        f" connection; the best of {ROUNDS} rounds of each ({rounds})"
    )
    shutil.rmtree(folder)


def write_files(folder: Path) -> None:
    writer = Writer(5)
    for i in range(FILES):
        file = folder / f"{i % 100:02}" / f"document-{i:05}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"# Document {i}\n\n{writer.paragraph(WORDS, i)}\n")


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*.md"))


def fresh(server: Server):
    connection = server.fresh("bench_load")
    connection.execute("""SELECT kb.create_knowledge_base('load', embedder => 'hash', chunking => '{"strategy": "none"}')""")
    connection.execute("CHECKPOINT")
    return connection


def check(server: Server, connection) -> None:
    """That all are there. The worker must not work on them in the next round."""
    (count,) = connection.execute("SELECT count(*) FROM kb.documents").fetchone()
    if count != FILES:
        raise AssertionError(f"{count} documents, not {FILES}")
    server.drop(connection)


def by_hand(server: Server, folder: Path) -> float:
    connection = fresh(server)
    begun = time.perf_counter()
    files = sorted(folder.rglob("*.md"))
    for i in range(0, len(files), BATCH):
        made = [
            {"external_id": str(file.relative_to(folder)), "content": file.read_text(), "content_type": "text/markdown"}
            for file in files[i : i + BATCH]
        ]
        put_documents(connection, "load", [Jsonb(json.dumps(document), dumps=str) for document in made], BATCH)
    took = time.perf_counter() - begun
    check(server, connection)
    return took


def by_program(server: Server, folder: Path) -> tuple[float, float]:
    connection = fresh(server)
    options = server.options
    command = [options.program, "--json", "--host", options.host, "--port", str(options.port), "--username", "postgres"]
    command += ["--dbname", "bench_load", "load", "load", "."]
    times = []
    for expected in ("added", "unchanged"):
        begun = time.perf_counter()
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, env=os.environ)
        times.append(time.perf_counter() - begun)
        counts = json.loads(done.stdout)
        if counts[expected] != FILES:
            raise AssertionError(f"kb load reports {counts}")
    check(server, connection)
    return times[0], times[1]
