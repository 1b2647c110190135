#!/usr/bin/env bash
# For the tests of updates: places each released install script in the server of PG_CONFIG as version X.frozen, from which an
# empty script leads to X, and a version that was made up for them; or removes these again, so that nobody else sees them among
# the available versions. tools/versions.sh place|remove
set -euo pipefail
# shellcheck source=tools/env.sh
. "$(dirname "$0")/env.sh"
# Not need_setup: tools/test.sh has given KB_SCRATCH to the server's user by now.
find_pg || die "no PostgreSQL with headers found: run make setup, or set PG_CONFIG"

extension=$("$PG_CONFIG" --sharedir)/extension
newest=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -n 1)
case ${1:?place or remove} in
    place)
        for script in "$root"/sql/released/kb--*.sql; do
            [ -e "$script" ] || continue
            version=${script##*/kb--}
            version=${version%.sql}
            place "$script" "$extension/kb--$version.frozen.sql"
            place /dev/null "$extension/kb--$version.frozen--$version.sql"
        done
        place "$root/tests/live/upgrade/to-made-up.sql" "$extension/kb--$newest--0.0.1.made_up.sql"
        place "$root/tests/live/upgrade/from-made-up.sql" "$extension/kb--0.0.1.made_up--$newest.sql"
        ;;
    remove)
        for script in "$extension"/kb--*.frozen*.sql "$extension"/kb--*0.0.1.made_up*.sql; do
            [ -e "$script" ] || continue
            if [ -w "$extension" ]; then rm -f "$script"; else as_root rm -f "$script"; fi
        done
        ;;
esac
