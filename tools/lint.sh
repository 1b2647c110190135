#!/usr/bin/env bash
# Subjects of commits, shell scripts, format, licences and bans of crates, and clippy.
# Expects what tools/setup.sh lint installs (make lint sees to it), and fails where it is missing.
set -euo pipefail
# shellcheck source=tools/env.sh
. "$(dirname "$0")/env.sh"
need_setup
for program in git shellcheck cargo-deny; do
    have "$program" || die "$program is missing, and what it checks would go unchecked: tools/setup.sh lint"
done

cd "$root"
say "subjects of commits"
# Those that are older than this rule are longer.
# A checkout may belong to somebody else than who checks it, and an exported one has no history.
subjects=
if git -c safe.directory='*' rev-parse --git-dir >/dev/null 2>&1; then
    subjects=$(git -c safe.directory='*' log --since=2026-11-28T08:00:00Z --format='%h %s')
else
    say "SKIPPED: this directory has no history"
fi
long=$(grep -E '^[^ ]+ .{73,}' <<<"$subjects" || true)
[ -z "$long" ] || die "a subject has at most 72 characters:"$'\n'"$long"
say "shellcheck"
shellcheck -x tools/*.sh bench/*.sh tests/setup/*.sh .ci/run
say "cargo fmt"
cargo fmt --check
say "cargo deny"
cargo deny --locked --workspace check licenses bans sources
say "cargo clippy, PostgreSQL $PG_MAJOR"
cargo clippy --workspace --exclude kb-fuzz --no-default-features --features "kb/pg$PG_MAJOR" --all-targets -- -D warnings
say "lint: nothing found"
