#!/usr/bin/env bash
# Builds kb and installs it into the server of PG_CONFIG; with stage, only into .scratch/stage-PROFILE, from which packages are made.
# tools/install.sh dev|release [stage]
set -euo pipefail
# shellcheck source=tools/env.sh
. "$(dirname "$0")/env.sh"
need_setup

profile=${1:?dev or release}
only=${2:-}
stage=$root/.scratch/stage-$profile
# The demo's chat model comes with the development build: compiled beside kb it takes no time of its own.
flags=(--package kb-stub-provider) built=$CARGO_TARGET_DIR/debug
[ "$profile" = dev ] || flags=(--release) built=$CARGO_TARGET_DIR/release
# The library is for this machine's server, so cargo leaves it where it is looked for.
unset CARGO_BUILD_TARGET

# sudo asks before the minutes of compiling, not after.
installed=$("$PG_CONFIG" --pkglibdir)/kb.so
if [ -z "$only" ] && [ ! -e "$installed" ] && [ ! -w "${installed%/*}" ]; then gain_root "make install PG_CONFIG=$PG_CONFIG"; fi

cd "$root"
say "building kb ($profile) for PostgreSQL $PG_MAJOR"
rm -rf "$stage"
extension=$("$PG_CONFIG" --sharedir)/extension
library=$stage$("$PG_CONFIG" --pkglibdir)/kb.so
control=$stage$extension/kb.control
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
rm -f "$built/libkb.so"
cargo build "${flags[@]}" --package kb --package kb-cli --package kb-extract --package kb-schema --no-default-features \
    --features "kb/pg$PG_MAJOR"
install -D "$built/kb-extract" "${library%/*}/kb-extract"
# The program is there before the library that starts it.
[ -n "$only" ] || place_all "$stage" kb-extract
# Beside psql, where programs of extensions are.
install -D "$built/kb" "$stage$("$PG_CONFIG" --bindir)/kb"
install -D "$built/libkb.so" "$library"
mkdir -p "$stage$extension"
sed "s/@CARGO_VERSION@/$version/" kb.control >"$control"
objcopy -O binary --only-section=.pgrxsc "$library" "$root/.scratch/pgrxsc"
"$built/kb-schema" "$control" <"$root/.scratch/pgrxsc" >"$stage$extension/kb--$version.sql"
# Scripts from one version to the next.
find sql/upgrade -name 'kb--*--*.sql' -exec cp {} "$stage$extension/" \;
[ -z "$only" ] || exit 0
place_all "$stage" '*'

if [ "$profile" = release ] && [ -d "$KB_MODEL_DIR" ]; then
    # Where kb.model_dir points unless it is set.
    while IFS= read -r file; do
        place "$KB_MODEL_DIR/$file" "$("$PG_CONFIG" --sharedir)/kb/models/$file"
    done < <(cd "$KB_MODEL_DIR" && find . -type f ! -name .pins -printf '%P\n')
fi
