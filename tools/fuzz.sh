#!/usr/bin/env bash
# The targets of tests/fuzz under libFuzzer, KB_FUZZ_SECONDS (half an hour) in all, as many at a time as there are
# cores. The inputs found are kept in .scratch/fuzz for the next run; one that fails is named.
set -euo pipefail
# shellcheck source=tools/env.sh
. "$(dirname "$0")/env.sh"
cd "$root"
have c++ || die "libFuzzer is C++, and there is no compiler for it: apt-get install g++"

# Only kb's own crates are compiled with coverage; most others are taken as the tests have built them.
say "building the targets with coverage"
RUSTC_WORKSPACE_WRAPPER=$root/tools/rustc-coverage.sh cargo build --package kb-fuzz
program=${CARGO_TARGET_DIR:-$root/target}/debug/kb-fuzz

read -ra targets <<<"${*:-$(cd tests/fuzz/seeds && echo *)}"
cores=$(nproc)
seconds=$((${KB_FUZZ_SECONDS:-1800} * cores / ${#targets[@]}))

# fuzz TARGET: its time under libFuzzer, quietly; fails when an input does.
fuzz() {
    local corpus=$root/.scratch/fuzz/$1
    mkdir -p "$corpus"
    KB_FUZZ_TARGET=$1 nice -n 10 "$program" -max_total_time="$seconds" -max_len=16384 -timeout=60 -rss_limit_mb=2048 \
        -print_final_stats=1 -artifact_prefix="$corpus.found-" "$corpus" "tests/fuzz/seeds/$1" >"$corpus.log" 2>&1 ||
        { tail -n 40 "$corpus.log"; say "$1 fails; keep the input in tests/fuzz/seeds/$1"; return 1; }
    say "$1: $(sed -n 's/^stat::number_of_executed_units: *//p' "$corpus.log") inputs in $seconds s"
}
export -f fuzz say
export root program seconds
printf '%s\n' "${targets[@]}" | xargs -P "$cores" -I{} bash -c 'fuzz {}' || die "an input fails; see above"
