#!/usr/bin/env bash
# Every test: pg_test/ against a scratch cluster, then the unit tests and tests/*.rs, which make their own
# clusters. Expects kb installed (make test sees to it), leaves nothing running.
# tools/test.sh WORD... runs only those unit tests and tests of tests/ whose names hold one of the words.
set -euo pipefail
# shellcheck source=tools/env.sh
. "$(dirname "$0")/env.sh"
# shellcheck source=tools/cluster.sh
. "$(dirname "$0")/cluster.sh"
need_setup

# A process by its number and its start, since numbers are given again.
process() { printf '%s %s\n' "$1" "$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20)"; }

# Each test makes and removes a data directory. In memory that takes a third of the time of ext4, which looks long for inodes
# that were not freed just now. It needs space for a few clusters, and the right to run what is there.
place=$KB_SCRATCH/test
if [ "$(df --output=avail --block-size=1G /dev/shm 2>/dev/null | tail -n 1)" -ge 6 ] 2>/dev/null && [ -w /dev/shm ] &&
    [ "$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)" -ge 10 ] &&
    ! findmnt --noheadings --output OPTIONS /dev/shm 2>/dev/null | grep -q noexec; then
    place=/dev/shm/kb-test
fi

# What killed runs have left.
for run in "$KB_SCRATCH"/test.*.run /dev/shm/kb-test.*.run; do
    [ -O "$run" ] || continue
    owner=$(cat "$run")
    [ "$owner" != "$(process "${owner%% *}")" ] || continue
    clusters_stop "${run%.run}"
    rm -rf "${run%.run}" "$run"
done

work=$(mktemp -d "$place.XXXXXX")
# In one step: an empty file would be that of a killed run.
process $$ >"$work.new"
mv "$work.new" "$work.run"
if is_root; then chown postgres:postgres "$work"; fi

# Also stops what a test left running: every cluster of this run is in $work.
cleanup() {
    clusters_stop "$work"
    "$root/tools/versions.sh" remove || true
    rm -rf "$work" "$work.run"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

# The tests must not spend the caller's keys.
while IFS= read -r variable; do unset "$variable"; done < <(compgen -e | grep -E '_(KEY|TOKEN)$' || true)

cd "$root"
failed=
if [ $# -eq 0 ]; then
    say "pg_test"
    cluster_init "$work/pg_test"
    cluster_start "$work/pg_test" "shared_preload_libraries = ''" "fsync = off"
    timeout --kill-after 30 900 "$root/tools/regress.sh" --host "$work/pg_test" --port "$PORT" --user postgres || {
        failed="pg_test"
        say "the server's last words:"
        tail -n 20 "$work/pg_test/log"
    }
    cluster_stop "$work/pg_test"

    say "kernels, under a sanitizer"
    "$root/tools/sanitize.sh" || failed="$failed sanitizer"
fi
# What tests/*.rs need to make clusters: where the server is, a place its user can write, and who that is.
export KB_SCRATCH=$work RUST_TEST_THREADS=2
if is_root; then export KB_SERVER_USER=postgres; else unset KB_SERVER_USER; fi
say "unit tests and tests/"
"$root/tools/versions.sh" place
cargo=(cargo test --workspace --exclude kb-fuzz --no-default-features --features "kb/pg$PG_MAJOR" --lib --tests)
"${cargo[@]}" --no-run
timeout --kill-after 30 3900 "${cargo[@]}" --no-fail-fast -- "$@" 2>&1 | tee "$work/output" || failed="$failed cargo-test"
# Once more at the end, where one looks, and where a shortened log still has it: what each failed test said, without the server's log.
awk '/^failures:$/ { failed = 1 }
     / panicked at / { said = failed; lines = 0 }
     /^the last of .*\/log:$/ || /^note: run with `RUST_BACKTRACE/ || /^$/ && lines > 40 { said = 0 }
     /^    [a-z_:0-9]+$/ && failed || /^test result: FAILED/ { print; next }
     said && lines++ < 60' "$work/output" | tail -n 100 | cut -c1-400
[ -z "$failed" ] || die "failed: $failed"
