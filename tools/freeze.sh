#!/usr/bin/env bash
# Keeps the whole install script of this version in sql/released, from where tests/live/upgrade.rs takes it. Once for each
# version, when it is released. Expects the development build installed (make freeze sees to it).
set -euo pipefail
# shellcheck source=tools/env.sh
. "$(dirname "$0")/env.sh"
need_setup

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -n 1)
name=kb--$version.sql
[ ! -e "$root/sql/released/$name" ] || die "sql/released/$name is there: what is released does not change"
cp "$("$PG_CONFIG" --sharedir)/extension/$name" "$root/sql/released/$name"
say "sql/released/$name is kept. From now on a change of the schema needs a new version in Cargo.toml and sql/upgrade/kb--$version--NEW.sql; tests/live/upgrade needs fill-$version.sql"
