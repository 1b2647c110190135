#!/usr/bin/env bash
# Debian packages of kb: postgresql-N-kb for each of Debian's servers that is here with its headers, kb (the programs), kb-models,
# and postgresql-N-pgvector where apt has none that is new enough. The version is that of Cargo.toml.
# tools/deb.sh [release|dev] [FOLDER]; FOLDER is .scratch/packages unless given.
set -euo pipefail
# shellcheck source=tools/env.sh
. "$(dirname "$0")/env.sh"
# shellcheck source=tools/pins.sh
. "$root/tools/pins.sh"
# shellcheck source=tools/pgvector.sh
. "$root/tools/pgvector.sh"

profile=${1:-release}
folder=${2:-$root/.scratch/packages}
find_scratch
for program in dpkg-deb dpkg-shlibdeps strip gzip; do
    have "$program" || die "$program is missing: apt-get install dpkg-dev binutils gzip"
done
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -n 1)
architecture=$(dpkg --print-architecture)
# What is packed twice is the same twice, whenever that is.
epoch=$(git -c safe.directory='*' -C "$root" log -1 --format=%ct 2>/dev/null || stat -c %Y "$root/Cargo.toml")
work=$root/.scratch/deb
log=$root/.scratch/deb.log
: >"$log"
rm -rf "$work"
mkdir -p "$work" "$folder"
rm -f "$folder"/*.deb
try() { "$@" >>"$log" 2>&1 </dev/null || die "$1 failed; its output is in $log"; }

maintainer="The kb maintainers <kb@packages.debian.org>"

# The libraries that these programs and libraries need, as a list of packages.
libraries() {
    mkdir -p "$work/shlibs/debian"
    printf 'Source: kb\n\nPackage: kb\nArchitecture: any\n' >"$work/shlibs/debian/control"
    (cd "$work/shlibs" && dpkg-shlibdeps -O "${@/#/-e}" 2>>"$log" | sed -n 's/^shlibs:Depends=//p')
}

# pack NAME ARCHITECTURE SECTION DEPENDS RECOMMENDS SUMMARY DESCRIPTION: packs what is in $work/NAME.
pack() {
    local name=$1 dir=$work/$1 doc=$work/$1/usr/share/doc/$1 changelog=changelog.gz
    # A version with a revision is that of a package of somebody else's sources.
    [ -z "${packed_version:-}" ] || changelog=changelog.Debian.gz
    mkdir -p "$dir/DEBIAN" "$doc"
    [ -f "$doc/copyright" ] || cp "$work/copyright" "$doc/copyright"
    printf '%s (%s) unstable; urgency=medium\n\n  * Packaged from the sources of this version; CHANGELOG.md says what is new.\n\n -- %s  %s\n' \
        "$name" "${packed_version:-$version}" "$maintainer" "$(date -R -u -d "@$epoch")" |
        gzip -9n >"$doc/$changelog"
    find "$dir" -type f -exec chmod 644 {} + -o -type d -exec chmod 755 {} +
    find "$dir" -type f \( -path '*/bin/*' -o -name kb-extract \) -exec chmod 755 {} +
    find "$dir" -type f \( -name '*.so' -o -path '*/bin/*' -o -name kb-extract \) -exec strip --strip-unneeded {} +
    (cd "$dir" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum >DEBIAN/md5sums)
    {
        printf 'Package: %s\nVersion: %s\nArchitecture: %s\nMaintainer: %s\n' "$name" "${packed_version:-$version}" "$2" "$maintainer"
        printf 'Installed-Size: %s\nSection: %s\nPriority: optional\n' "$(du -ks --apparent-size "$dir/usr" | cut -f1)" "$3"
        [ -z "$4" ] || printf 'Depends: %s\n' "$4"
        [ -z "$5" ] || printf 'Recommends: %s\n' "$5"
        printf 'Description: %s\n' "$6"
        fold -s -w 75 <<<"$7" | sed 's/ *$//; s/^/ /'
    } >"$dir/DEBIAN/control"
    find "$dir" -newermt "@$epoch" -exec touch -h -d "@$epoch" {} +
    # Vectors hardly become smaller, however long that is tried.
    SOURCE_DATE_EPOCH=$epoch try dpkg-deb --root-owner-group -Zxz "-z$([ "$name" = kb-models ] && echo 0 || echo 6)" --build "$dir" \
        "$folder/${name}_${packed_version:-$version}_$2.deb"
    say "packed ${name}_${packed_version:-$version}_$2.deb"
}

# The licence of kb, and that its crates have notices of their own.
cat >"$work/copyright" <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: kb

Files: *
Copyright: 2026 The kb authors
License: Apache-2.0
 On Debian systems, the text of the Apache License, Version 2.0, is in
 /usr/share/common-licenses/Apache-2.0.
Comment:
 The programs and the library link crates whose notices are in
 /usr/share/doc/kb/third-party-notices.gz.
END

# The notices of all crates that Cargo.lock names, each text once.
notices() {
    cargo metadata --locked --format-version 1 --manifest-path "$root/Cargo.toml" 2>>"$log" |
        grep -o '"manifest_path":"[^"]*/registry/[^"]*"' | cut -d'"' -f4 | LC_ALL=C sort -u |
        while IFS= read -r manifest; do
            local dir=${manifest%/*} file
            for file in "$dir"/[Ll][Ii][Cc][Ee][Nn][CcSs][Ee]* "$dir"/COPYING* "$dir"/COPYRIGHT* "$dir"/NOTICE*; do
                [ -f "$file" ] || continue
                printf '%s %s\n' "$(cksum <"$file" | tr ' ' -)" "$file"
            done
        done | awk '!seen[$1]++ { print $2 }' |
        while IFS= read -r file; do
            printf '\n==== %s\n\n' "$(basename "$(dirname "$file")")"
            cat "$file"
        done
}

has_candidate() {
    local found
    found=$({ apt-cache policy "$1" 2>/dev/null || true; } | sed -nE 's/^ *Candidate: ([0-9][^ ]*)$/\1/p')
    [ -n "$found" ] && at_least "$found" "$2"
}

pack_server() {
    local major=$PG_MAJOR name=postgresql-$PG_MAJOR-kb stage=$root/.scratch/stage-$profile dir library extension depends
    dir=$work/$name library=/usr/lib/postgresql/$major/lib extension=/usr/share/postgresql/$major/extension
    mkdir -p "$dir$library" "$dir$extension" "$dir/usr/share/postgresql/$major/kb"
    cp "$stage$library/kb.so" "$dir$library/"
    cp "$stage$extension"/kb* "$dir$extension/"
    # The programs and the models are the same for all servers, and are found where the library looks for them.
    ln -s ../../../kb/kb-extract "$dir$library/kb-extract"
    ln -s ../../../kb/models "$dir/usr/share/postgresql/$major/kb/models"
    depends="$(libraries "$dir$library/kb.so"), postgresql-$major, postgresql-$major-pgvector (>= $PGVECTOR_LEAST), kb (= $version)"
    pack "$name" "$architecture" database "$depends" "kb-models" "retrieval inside PostgreSQL $major" \
        "kb makes a database its own retrieval engine: documents and table rows go in by SQL; chunking, embedding and indexing happen in background workers; questions are answered by kb.query, with row-level security for tenants."
    if ! has_candidate "postgresql-$major-pgvector" "$PGVECTOR_LEAST"; then pack_pgvector; fi
}

pack_pgvector() {
    local name=postgresql-$PG_MAJOR-pgvector packed_version=$PGVECTOR-0kb dir
    dir=$work/$name
    say "apt has no $name: building it"
    build_pgvector_into "$work/pgvector-$PG_MAJOR" "$dir" || die "building pgvector $PGVECTOR failed; its output is in $log"
    # Nobody links it.
    rm -rf "$dir/usr/include" "$dir/usr/share/doc"
    mkdir -p "$dir/usr/share/doc/$name"
    {
        printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: pgvector\n'
        printf 'Source: https://github.com/pgvector/pgvector\n\nFiles: *\n'
        printf 'Copyright: 1996-2026 PostgreSQL Global Development Group\nLicense: PostgreSQL\n'
        sed 's/^$/./; s/^/ /' "$work/pgvector-$PG_MAJOR/LICENSE"
    } >"$dir/usr/share/doc/$name/copyright"
    pack "$name" "$architecture" database "$(libraries "$dir/usr/lib/postgresql/$PG_MAJOR/lib/vector.so"), postgresql-$PG_MAJOR" "" \
        "vector similarity search for PostgreSQL $PG_MAJOR" \
        "pgvector gives PostgreSQL the type vector and indexes on it. Built for kb from the sources in Debian's pool, because this release of Debian has no package of it."
}

pack_programs() {
    local dir=$work/kb stage=$root/.scratch/stage-$profile program
    program=$dir/usr/bin/kb
    mkdir -p "$dir/usr/bin" "$dir/usr/lib/kb" "$dir/usr/share/man/man1" "$dir/usr/share/bash-completion/completions" \
        "$dir/usr/share/zsh/vendor-completions" "$dir/usr/share/fish/vendor_completions.d" "$dir/usr/share/doc/kb"
    cp "$stage$PG_BIN/kb" "$program"
    cp "$stage$("$PG_CONFIG" --pkglibdir)/kb-extract" "$dir/usr/lib/kb/"
    "$stage$PG_BIN/kb" completions bash >"$dir/usr/share/bash-completion/completions/kb"
    "$stage$PG_BIN/kb" completions zsh >"$dir/usr/share/zsh/vendor-completions/_kb"
    "$stage$PG_BIN/kb" completions fish >"$dir/usr/share/fish/vendor_completions.d/kb.fish"
    "$stage$PG_BIN/kb" man "$dir/usr/share/man/man1"
    gzip -9n "$dir"/usr/share/man/man1/*
    notices | gzip -9n >"$dir/usr/share/doc/kb/third-party-notices.gz"
    gzip -9nc "$root/NOTICE" >"$dir/usr/share/doc/kb/NOTICE.gz"
    pack kb "$architecture" database "$(libraries "$program" "$dir/usr/lib/kb/kb-extract")" "" \
        "programs of the PostgreSQL extension kb" \
        "The program kb loads files into knowledge bases, applies declared configuration, asks questions and shows the state of a database with the extension kb. The package also has kb-extract, which the server starts to read files of foreign formats."
}

pack_models() {
    local dir=$work/kb-models
    [ -f "$KB_MODEL_DIR/.pins" ] || die "the models are missing: tools/setup.sh models"
    mkdir -p "$dir/usr/share/kb" "$dir/usr/share/doc/kb-models"
    cp -r "$KB_MODEL_DIR" "$dir/usr/share/kb/models"
    rm -f "$dir/usr/share/kb/models/.pins"
    cat >"$dir/usr/share/doc/kb-models/copyright" <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: all-MiniLM-L6-v2, wordllama

Files: usr/share/kb/models/all-MiniLM-L6-v2/*
Copyright: The sentence-transformers authors
License: Apache-2.0

Files: usr/share/kb/models/wordllama-l2-supercat-256/*
Copyright: 2024 Lee Miller
License: Expat
 Permission is hereby granted, free of charge, to any person obtaining a copy
 of this software and associated documentation files (the "Software"), to deal
 in the Software without restriction, including without limitation the rights
 to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
 copies of the Software, and to permit persons to whom the Software is
 furnished to do so, subject to the following conditions:
 .
 The above copyright notice and this permission notice shall be included in all
 copies or substantial portions of the Software.
 .
 THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
 IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
 FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
 AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
 LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
 OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
 SOFTWARE.

License: Apache-2.0
 On Debian systems, the text of the Apache License, Version 2.0, is in
 /usr/share/common-licenses/Apache-2.0.
END
    pack kb-models all database "" "" "local embedding models for kb" \
        "The models all-MiniLM-L6-v2 and wordllama, by which kb embeds texts inside the server without a key and without a service. kb finds them where this package puts them."
}

any=
given=${PG_CONFIG:-}
for major in "${KB_MAJORS[@]}"; do
    candidate=$(debian_server "$major")
    [ -z "$given" ] || [ "$(realpath -s "$given")" = "$candidate" ] || continue
    if ! has_server "$candidate" || ! has_headers "$candidate"; then continue; fi
    PG_CONFIG=$candidate
    find_pg
    "$root/tools/install.sh" "$profile" stage
    pack_server
    any=$major
done
[ -n "$any" ] || die "there is none of Debian's servers with its headers here: apt-get install postgresql-15 postgresql-server-dev-15"
pack_programs
pack_models
if have lintian; then
    say "lintian"
    lintian --fail-on error --tag-display-limit 0 "$folder"/*.deb | tee "$work/lintian" || die "lintian reports errors"
fi
rm -rf "$work/kb-models"
say "the packages are in $folder; on a server: apt-get install ./kb_*.deb ./kb-models_*.deb ./postgresql-N-*.deb"
