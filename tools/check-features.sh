#!/usr/bin/env bash
# Compile-checks kb for every PostgreSQL version it has a feature for, without any of those servers: pgrx
# ships the bindings of each version for its documentation, and the check is made against them.
set -euo pipefail
# shellcheck source=tools/env.sh
. "$(dirname "$0")/env.sh"
mkdir -p "$root/.scratch"

# DOCS_RS keeps the build script from looking for a server; cfg(docsrs), for that one crate, has the
# shipped bindings used in place of generated ones.
wrapper=$root/.scratch/rustc-with-shipped-bindings
cat >"$wrapper" <<'WRAPPER'
#!/bin/sh
case " $* " in
    *" --crate-name pgrx_pg_sys "*) exec "$@" --cfg docsrs ;;
    *) exec "$@" ;;
esac
WRAPPER
chmod +x "$wrapper"

cd "$root"
# In a target directory of its own: the bindings differ from those of the real build.
export CARGO_TARGET_DIR=$root/.scratch/check-features RUSTC_WRAPPER=$wrapper DOCS_RS=1
for version in 15 16 17 18; do
    say "checking pg$version"
    cargo check --lib --no-default-features --features "pg$version"
done
