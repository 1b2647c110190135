#!/usr/bin/env python3
"""Compares programs that find text in files: how many of the words that a reference finds they find too.

    bench/extract.py DIRECTORY REFERENCE... -- NAME=COMMAND...

Each command runs once per file of DIRECTORY, with {} replaced by the file's path, and prints text. A
reference is such a pair as well. For each program, the summary has the files that it failed on, the share of
each reference's words that it found in the reference's order (a longest common subsequence over the first
30,000 words of a file), the share that it found in any order, and the seconds of processor time that it took,
which say the same on a busy machine, and megabytes a minute by these.

More than one reference helps where a reference has an order of its own: pdftotext -layout reads across the
columns of a page. The column "best" takes the reference whose words a program finds best, file by file.
"""

import collections
import pathlib
import re
import resource
import shlex
import subprocess
import sys
import unicodedata

# Bounds the cost of a comparison, which is words times words / 64.
MOST_WORDS = 30_000
TIMEOUT = 120


def words_of(text):
    """The words of a text. A word that is hyphenated at a line end is one word, and ligatures are letters."""
    text = unicodedata.normalize("NFKC", text).replace("\u00ad", "")
    # What Markdown escapes and marks is no part of a word.
    text = text.replace("\\", "")
    text = re.sub(r"(?<=\w)[-\u2010]\s*\n\s*(?=[^\W\d_])", "", text)
    return re.findall(r"[^\W_]+", text)[:MOST_WORDS]


def in_order(wanted, found):
    """The length of the longest common subsequence of two lists, by bit-parallel dynamic programming
    (Hyyrö 2004): a bit of `row` per word of `wanted`."""
    places = collections.defaultdict(int)
    for place, word in enumerate(wanted):
        places[word] |= 1 << place
    every = (1 << len(wanted)) - 1
    row = every
    for word in found:
        matches = row & places.get(word, 0)
        row = ((row + matches) | (row - matches)) & every
    return len(wanted) - row.bit_count()


def in_any_order(wanted, found):
    return (collections.Counter(wanted) & collections.Counter(found)).total()


def used():
    """Processor seconds of the programs that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(command, path):
    """The text that a command prints, or None if it fails, and the seconds that it took."""
    arguments = [argument.replace("{}", str(path)) for argument in shlex.split(command)]
    began = used()
    try:
        done = subprocess.run(arguments, capture_output=True, timeout=TIMEOUT, check=True)
        text = done.stdout.decode("utf-8", "replace")
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        text = None
    return text, used() - began


def main():
    directory, *rest = sys.argv[1:]
    split = rest.index("--")
    references = dict(pair.split("=", 1) for pair in rest[:split])
    programs = dict(pair.split("=", 1) for pair in rest[split + 1 :])
    files = sorted(path for path in pathlib.Path(directory).rglob("*") if path.is_file())
    seconds = collections.Counter()
    shares = collections.defaultdict(list)
    failures = collections.defaultdict(list)
    total, compared = 0, 0
    for path in files:
        wanted = {}
        for name, command in references.items():
            text, took = run(command, path)
            seconds[name] += took
            wanted[name] = words_of(text or "")
        total += path.stat().st_size
        if not all(wanted.values()):
            continue
        compared += 1
        for name, command in programs.items():
            text, took = run(command, path)
            seconds[name] += took
            if text is None:
                failures[name].append(path.name)
            found = words_of(text or "")
            of_file = {ref: in_order(words, found) / len(words) for ref, words in wanted.items()}
            for ref, share in of_file.items():
                shares[name, ref].append(share)
            shares[name, "best"].append(max(of_file.values()))
            first = next(iter(wanted.values()))
            shares[name, "any order"].append(in_any_order(first, found) / len(first))
            print(name, path.name, *(f"{ref}={share:.3f}" for ref, share in of_file.items()), f"{took:.1f}s",
                  file=sys.stderr)
    columns = [*references, "best", "any order"]
    print(f"{len(files)} files, {total / 1e6:.1f} MB, {compared} in which each reference finds words\n")
    print("| program | failed |", *(f"{column} |" for column in columns), "lowest best | seconds | MB/min |")
    print("|---|" + "---:|" * (len(columns) + 4))
    for name in [*references, *programs]:
        rate = f"{total / 1e6 / seconds[name] * 60:.0f}" if seconds[name] else "-"
        cells = [f"{sum(shares[name, c]) / compared:.4f}" if shares[name, c] else "" for c in columns]
        low = f"{min(shares[name, 'best']):.3f}" if shares[name, "best"] else ""
        print("|", " | ".join([name, str(len(failures[name])), *cells, low, f"{seconds[name]:.1f}", rate]), "|")
    for name, paths in failures.items():
        print(f"\n{name} failed: {', '.join(paths)}")


if __name__ == "__main__":
    main()
