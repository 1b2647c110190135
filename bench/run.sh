#!/usr/bin/env bash
# The benchmarks, against a scratch cluster of their own; expects kb installed (make bench sees to it).
# bench/run.sh [--only NAME,...] [--cranfield DIR] [--chunks N], names: ingest query seen remote model avx2 memory edit files load many
# grown repeated tables remembered conversations cost cranfield, and locomo worker (its memory) tenants filters keyword modules, which a whole run has not; N chunks for tenants, --filtered-chunks N for
# filters, --grown-chunks N for grown, --keyword-chunks N for keyword, --knowledge-bases N for many, --repeated-chunks N for repeated, --memories N for remembered.
# CRANFIELD=dir or --cranfield DIR: a collection in the form of BEIR (corpus.jsonl, queries.jsonl and
# qrels.tsv, or qrels/test.tsv, dev.tsv or train.tsv). ONNX=dir: graphs for ONNX Runtime, to stand beside the local model.
# LOCOMO=file: locomo10.json of snap-research/LoCoMo, for locomo. HTML=dir: pages (*.html) whose passages repeat themselves, for repeated, instead of made-up texts; PG_TEXTSEARCH=conninfo: a server with
# pg_textsearch (PostgreSQL 17 or later), to stand beside its questions by words.
# DOCUMENTS=dir: files of many formats for files, instead of those that tools/documents.sh fetches.
# BENCH_TIMEOUT=n: seconds for all, 3600 unless given; large collections take longer.
# A whole run writes bench/results.md. BENCH_RESULTS=file: the results are written there, also those of a part, as BENCH_COMMAND's.
set -euo pipefail
# shellcheck source=tools/env.sh
. "$(dirname "$0")/../tools/env.sh"
# shellcheck source=tools/cluster.sh
. "$root/tools/cluster.sh"
need_setup

PSYCOPG=3.2.13
dir=$KB_SCRATCH/bench-cluster
avx2_dir=$KB_SCRATCH/bench-avx2
files_dir=$KB_SCRATCH/bench-files

cleanup() {
    cluster_stop "$dir" || true
    cluster_stop "$avx2_dir" || true
    rm -rf "$dir" "$avx2_dir" "$files_dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

# A Python with pip, and psycopg in a directory of the checkout, which needs neither venv nor the right to install.
python=
for candidate in python3 /usr/bin/python3; do
    if "$candidate" -m pip --version >/dev/null 2>&1; then python=$candidate; break; fi
done
[ -n "$python" ] || die "python3 with pip is missing: apt-get install python3-pip"
libraries=$root/.scratch/bench-python-$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-$PSYCOPG
if [ ! -d "$libraries" ]; then
    say "fetching psycopg $PSYCOPG"
    rm -rf "$libraries.new"
    "$python" -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --only-binary=:all: \
        --target "$libraries.new" "psycopg[binary]==$PSYCOPG"
    mv "$libraries.new" "$libraries"
fi

# ONNX=dir: a directory with graphs of MiniLM (f32.onnx, f32_nomask.onnx, and the same of int8) that ONNX Runtime computes beside kb.
onnx_libraries=
if [ -n "${ONNX:-}" ]; then
    onnx_libraries=$libraries-onnx
    if [ ! -d "$onnx_libraries" ]; then
        say "fetching onnxruntime"
        rm -rf "$onnx_libraries.new"
        "$python" -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --only-binary=:all: \
            --target "$onnx_libraries.new" onnxruntime numpy tokenizers
        mv "$onnx_libraries.new" "$onnx_libraries"
    fi
fi

# Which build is installed: the one whose stage it equals.
library=$("$PG_CONFIG" --pkglibdir)/kb.so
profile=unknown
for candidate in release dev; do
    if cmp -s "$root/.scratch/stage-$candidate$library" "$library"; then
        profile=$candidate
        break
    fi
done

# The provider that the remote benchmark asks, and the program that measures cost against size.
(cd "$root" && cargo build --quiet --package kb --package kb-stub-provider --no-default-features --features "kb/pg$PG_MAJOR" \
    --bin stub-provider --example cost)
examples=$CARGO_TARGET_DIR/debug/examples
stub=$CARGO_TARGET_DIR/debug/stub-provider

# candle, to stand beside the local model on AVX2: none of what kb is built of, so it is built here.
candle=$root/.scratch/candle/release/candle-rate
if [[ "$*" != *--only* || "$*" == *avx2* ]]; then
    say "building candle (once)"
    CARGO_TARGET_DIR=$root/.scratch/candle cargo build --quiet --release --manifest-path "$root/bench/candle/Cargo.toml" ||
        say "candle cannot be built: avx2 has its figure of another machine"
fi

# Real files of many formats.
documents=${DOCUMENTS:-$KB_SCRATCH/bench-documents}
if [ ! -d "$documents" ] && [[ "$*" != *--only* || "$*" == *files* ]]; then
    "$root/tools/documents.sh" "$documents" all || say "there are no real files: the benchmark files goes without"
fi
[ -d "$documents" ] || documents=

# What was fetched and built above does not count.
SECONDS=0

# A quarter of the memory, as PostgreSQL's manual has it: tables of both sides fit, and neither takes the other's pages.
buffers=$(awk '/^MemTotal/ { print int($2 / 1024 / 4) "MB" }' /proc/meminfo)
rm -rf "$files_dir"
mkdir "$files_dir"
say "making a cluster in $dir"
cluster_stop "$dir"
rm -rf "$dir"
cluster_init "$dir"
# Files of WAL are used again, as in a server that has run for a while: to make one takes as long as to fill it.
cluster_start "$dir" "shared_preload_libraries = 'kb'" "kb.source_dirs = '$files_dir'" \
    "kb.allowed_hosts = '127.0.0.1, localhost'" "max_wal_size = '4GB'" "min_wal_size = '4GB'" "autovacuum = off" "shared_buffers = '$buffers'"
postmaster=$(as_server head -n 1 "$dir/data/postmaster.pid")

# One more, which has nothing to do until the model is measured on AVX2. The server reads which instructions to use from its environment.
avx2=()
if grep -qw avx2 /proc/cpuinfo && grep -qw fma /proc/cpuinfo && [[ "$*" != *--only* || "$*" == *avx2* ]]; then
    cluster_stop "$avx2_dir"
    rm -rf "$avx2_dir"
    cluster_init "$avx2_dir"
    (export KB_INSTRUCTION_SET=avx2 && cluster_start "$avx2_dir" "shared_preload_libraries = 'kb'" "autovacuum = off")
    avx2_postmaster=$(as_server head -n 1 "$avx2_dir/data/postmaster.pid")
    as_server grep -qzFx KB_INSTRUCTION_SET=avx2 "/proc/$avx2_postmaster/environ" ||
        die "the server in $avx2_dir does not have KB_INSTRUCTION_SET"
    avx2=(--avx2-host "$avx2_dir" --avx2-postmaster "$avx2_postmaster")
    if [ -x "$candle" ]; then avx2+=(--candle "$candle"); fi
fi

# What was asked for, for the title of the results; and where these are kept.
command="bench/run.sh${*:+ $*}"
results=(--command "${BENCH_COMMAND:-$command}" --results "${BENCH_RESULTS:-$root/bench/results.md}")
if [ -n "${BENCH_RESULTS:-}" ]; then results+=(--keep); fi

export PYTHONPATH=$libraries PYTHONDONTWRITEBYTECODE=1
timeout --foreground --kill-after 30 "${BENCH_TIMEOUT:-3600}" "$python" "$root/bench/driver" \
    --host "$dir" --port "$PORT" --postmaster "$postmaster" --profile "$profile" --manual "$KB_SCRATCH/manual" \
    "${results[@]}" --pgbench "$PG_BIN/pgbench" --stub "$stub" --cost "$examples/cost" \
    "${avx2[@]}" --prepared-in "$SECONDS" \
    --cranfield "${CRANFIELD:-}" --locomo "${LOCOMO:-}" --onnx "${ONNX:-}" --onnx-libraries "$onnx_libraries" \
    --html "${HTML:-}" --pg-textsearch "${PG_TEXTSEARCH:-}" \
    --documents "$documents" --files "$files_dir" --extract "$("$PG_CONFIG" --pkglibdir)/kb-extract" --program "$PG_BIN/kb" \
    --models "$("$PG_CONFIG" --sharedir)/kb/models" "$@"
