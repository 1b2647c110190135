#!/usr/bin/env bash
# Format, clippy for the pure build and for the server's, and where installed: licences, bans, shell scripts.
set -euo pipefail
# shellcheck source=tools/env.sh
. "$(dirname "$0")/env.sh"
need_setup

cd "$root"
say "cargo fmt"
cargo fmt --check
say "cargo clippy, pure modules"
cargo clippy --no-default-features -p kb -p kb-kernels --all-targets -- -D warnings
say "cargo clippy, PostgreSQL $PG_MAJOR"
cargo clippy --no-default-features --features "pg$PG_MAJOR" --all-targets -- -D warnings
if cargo deny --version >/dev/null 2>&1; then
    say "cargo deny"
    cargo deny check licenses bans sources
fi
if command -v shellcheck >/dev/null; then
    say "shellcheck"
    shellcheck -x tools/*.sh .ci/run
fi
say "lint: nothing found"
