#!/usr/bin/env bash
# Runs pg_test/ by PostgreSQL's own pg_regress, against the server that PGHOST and PGPORT name.
# tools/regress.sh [PG_REGRESS OPTION...]
set -euo pipefail
# shellcheck source=tools/env.sh
. "$(dirname "$0")/env.sh"
need_setup

shopt -s nullglob
tests=()
for file in "$root"/pg_test/sql/*.sql; do tests+=("$(basename "$file" .sql)"); done
[ ${#tests[@]} -gt 0 ] || die "pg_test/sql holds no test"
out=$root/.scratch/pg_test
rm -rf "$out"
mkdir -p "$out"
"$(dirname "$("$PG_CONFIG" --pgxs)")/../test/regress/pg_regress" --inputdir "$root/pg_test" --outputdir "$out" \
    --bindir "$PG_BIN" --dbname kb_regress --encoding UTF8 --no-locale "$@" "${tests[@]}" || {
    status=$?
    if [ -f "$out/regression.diffs" ]; then cat "$out/regression.diffs"; fi
    say "pg_test failed; results are in .scratch/pg_test/results"
    exit "$status"
}
