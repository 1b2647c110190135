#!/usr/bin/env bash
# Compile-checks kb for every PostgreSQL version it has a feature for, without any of those servers: pgrx
# ships the bindings of each version for its documentation, and the check is made against them.
# tools/check-features.sh [others]; others: without the version of the server found here, which make lint compiles.
set -euo pipefail
# shellcheck source=tools/env.sh
. "$(dirname "$0")/env.sh"
versions="15 16 17 18"
if [ "${1:-}" = others ]; then versions=${versions//$(find_pg && echo "$PG_MAJOR")/}; fi
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
export RUSTC_WRAPPER=$wrapper DOCS_RS=1
for version in $versions; do
    say "checking pg$version"
    # Crates are shared with other builds, but for this one and what depends on it: its bindings are not the real build's.
    # Cargo cannot see that, so a setting which changes nothing else tells them apart.
    cargo check --lib --no-default-features --features "pg$version" \
        --config 'profile.dev.package.pgrx-pg-sys.codegen-units = 17'
done

# The shipped bindings also have C's inline functions, which real builds have only with pgrx's feature cshim, and kb is built without it.
bindings=$(cargo metadata --format-version 1 --no-default-features --features pg15 |
    python3 -c 'import json, sys
print(next(p["manifest_path"] for p in json.load(sys.stdin)["packages"] if p["name"] == "pgrx-pg-sys"))')
bindings=${bindings%/Cargo.toml}/src/include
for version in 15 16 17 18; do
    inline=$(comm -12 \
        <(grep -o '"[A-Za-z0-9_]*__pgrx_cshim"' "$bindings/pg$version.rs" | sed 's/"\(.*\)__pgrx_cshim"/\1/' | sort -u) \
        <(grep -rhoE 'pg_sys::[A-Za-z0-9_]+' src | sed 's/pg_sys:://' | sort -u))
    [ -z "$inline" ] || die "inline functions of PostgreSQL $version that a build without cshim has not: ${inline//$'\n'/, }"
done
