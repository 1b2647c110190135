"""Runs the benchmarks that were asked for, in order, and prints one table.

A missed target is reported and fails nothing; after a wrong result or an error the exit status is 1.
"""

import argparse
import os
import sys
import time
import traceback
from pathlib import Path

import avx2
import conversations
import cost
import cranfield
import edit
import files
import filters
import grown
import ingest
import keyword_search
import load
import locomo
import memory
import many
import model
import query
import remembered
import remote
import repeated
import tables
import tenants
from report import Report, say
from server import Server

# What a whole run takes at most, of the usual sizes.
WHOLE_SECONDS = 900
SIZES = ("chunks", "filtered_chunks", "grown_chunks", "keyword_chunks", "repeated_chunks", "knowledge_bases", "memories")
# In this order: the gateway's memory is read after MiniLM has worked and before other models are loaded.
BENCHMARKS = {
    "ingest": ingest.run,
    "query": query.run,
    "seen": query.run_seen,
    "remote": remote.run,
    "model": model.run,
    "avx2": avx2.run,
    "memory": memory.run,
    "worker": memory.run_worker,
    "edit": edit.run,
    "files": files.run,
    "load": load.run,
    "many": many.run,
    "tenants": tenants.run,
    "filters": filters.run,
    "grown": grown.run,
    "keyword": keyword_search.run,
    "repeated": repeated.run,
    "tables": tables.run,
    "remembered": remembered.run,
    "conversations": conversations.run,
    "cost": cost.run,
    "cranfield": cranfield.run,
    "locomo": locomo.run,
    "modules": cost.run_modules,
}
# What a whole run has not, so that it takes a quarter of an hour: `make bench-full` has them, most of larger sizes.
FULL_ONLY = ("locomo", "worker", "tenants", "filters", "keyword", "modules")
WHOLE = [name for name in BENCHMARKS if name not in FULL_ONLY]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--postmaster", type=int, required=True)
    parser.add_argument("--profile", required=True)
    parser.add_argument("--manual", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    # The results of a part are written, too.
    parser.add_argument("--keep", action="store_true")
    # Whose results they are.
    parser.add_argument("--command", required=True)
    parser.add_argument("--pgbench", required=True)
    parser.add_argument("--stub", default="")
    parser.add_argument("--cost", default="")
    parser.add_argument("--cranfield", default="")
    parser.add_argument("--locomo", default="")
    parser.add_argument("--onnx", default="")
    parser.add_argument("--onnx-libraries", default="")
    parser.add_argument("--models", default="")
    # Real files; an empty directory that kb.source_dirs allows; the program kb-extract.
    parser.add_argument("--documents", default="")
    parser.add_argument("--files", default="")
    parser.add_argument("--extract", default="")
    # The program kb.
    parser.add_argument("--program", default="")
    # A cluster whose server is made to use AVX2, where the machine has it.
    parser.add_argument("--avx2-host", default="")
    parser.add_argument("--avx2-postmaster", type=int, default=0)
    # A program that measures candle, to stand beside that; else its last figure does.
    parser.add_argument("--candle", default="")
    # Seconds that making the clusters took.
    parser.add_argument("--prepared-in", type=float, default=0)
    parser.add_argument("--only", default="")
    # Of the tenants in their shared table.
    parser.add_argument("--chunks", type=int, default=50_000)
    # Under filters.
    parser.add_argument("--filtered-chunks", type=int, default=50_000)
    # That a knowledge base has before it grows to three times as many, in ten steps: 100,000 for steps of 20,000.
    parser.add_argument("--grown-chunks", type=int, default=40_000)
    # Of questions by words.
    parser.add_argument("--keyword-chunks", type=int, default=50_000)
    # Of texts that repeat themselves; instead of these the pages of a directory.
    parser.add_argument("--repeated-chunks", type=int, default=20_000)
    parser.add_argument("--html", default="")
    # How to connect to a server with pg_textsearch, to stand beside questions by words.
    parser.add_argument("--pg-textsearch", default="")
    # Idle ones, beside the one that has work.
    parser.add_argument("--knowledge-bases", type=int, default=10_000)
    # That a memory has, of 1,000 subjects.
    parser.add_argument("--memories", type=int, default=10_000)
    options = parser.parse_args()
    names = [name for name in options.only.split(",") if name] or WHOLE
    if unknown := set(names) - set(BENCHMARKS):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")

    server = Server(options)
    report = Report(server.describe())
    broken, seconds = False, {"making the clusters": options.prepared_in}
    for name, benchmark in BENCHMARKS.items():
        if name not in names:
            continue
        say(f"{name} …")
        begun = time.monotonic()
        try:
            benchmark(server, report)
        except Exception as error:  # One broken benchmark must not hide the others.
            traceback.print_exc()
            report.broken(name, error)
            broken = True
        seconds[name] = time.monotonic() - begun
        say(f"{name}: {seconds[name]:.0f} s")
    is_whole = set(names) == set(WHOLE)
    total = sum(seconds.values())
    report.note(f"{total:.0f} s in all, without building: {', '.join(f'{name} {took:.0f}' for name, took in seconds.items())}")
    if is_whole and not broken and all(getattr(options, size) == parser.get_default(size) for size in SIZES):
        report.add("the whole run, without building", f"{total:.0f} s", "", "", f"<= {WHOLE_SECONDS} s", total <= WHOLE_SECONDS)
    report.machine[0] += f", {os.getloadavg()[0]:.1f} at the end"
    print(report.text())
    if options.keep or is_whole:
        options.results.write_text(report.markdown(options.command))
        say(f"written to {options.results}")
    else:
        say(f"a part only: {options.results.name} is left as it is")
    return 1 if broken else 0


sys.exit(main())
