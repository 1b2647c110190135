#!/usr/bin/env bash
# Builds kb and installs it into the server of PG_CONFIG. tools/install.sh dev|release
set -euo pipefail
# shellcheck source=tools/env.sh
. "$(dirname "$0")/env.sh"
need_setup

profile=${1:?dev or release}
stage=$root/.scratch/stage-$profile
flags=(--pg-config "$PG_CONFIG" --out-dir "$stage")
[ "$profile" = release ] || flags+=(--debug)

# sudo asks before the minutes of compiling, not after.
installed=$("$PG_CONFIG" --pkglibdir)/kb.so
if [ ! -e "$installed" ] && [ ! -w "${installed%/*}" ]; then gain_root "make install PG_CONFIG=$PG_CONFIG"; fi

cd "$root"
say "building kb ($profile) for PostgreSQL $PG_MAJOR"
rm -rf "$stage"
cargo pgrx package "${flags[@]}" >"$root/.scratch/package.log" || { cat "$root/.scratch/package.log" >&2; exit 1; }
place_all "$stage" '*'

# Scripts from one version to the next.
extension=$("$PG_CONFIG" --sharedir)/extension
for script in sql/upgrade/kb--*--*.sql; do
    [ ! -e "$script" ] || place "$script" "$extension/${script##*/}"
done

if [ "$profile" = release ] && [ -d "$KB_MODEL_DIR" ]; then
    # Where kb.model_dir points unless it is set.
    while IFS= read -r file; do
        place "$KB_MODEL_DIR/$file" "$("$PG_CONFIG" --sharedir)/kb/models/$file"
    done < <(cd "$KB_MODEL_DIR" && find . -type f ! -name .pins -printf '%P\n')
fi
