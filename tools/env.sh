# What all scripts share: where things are, which server kb is built for, and how to act as root and as the server. Sourced,
# never run. KB_ROOT, a directory, stands for / in the tests.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
umask 022
# Scripts read what programs print: it must be English, in a locale that every system has.
unset LANGUAGE
export LC_ALL=C.UTF-8 LANG=C.UTF-8
PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin:$root/.scratch/bin

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target}

KB_MAJORS=(18 17 16 15)
PGVECTOR_LEAST=0.8

say() { printf 'kb: %s\n' "$*"; }
die() { printf 'kb: error: %s\n' "$*" >&2; exit 1; }

have() { command -v "$1" >/dev/null 2>&1; }
is_root() { [ "$(id -u)" -eq 0 ]; }

# rust-toolchain.toml names the Rust that kb is tested with. Where rustup neither has nor can fetch it, the user's default
# serves; setup.sh checks that it is new enough.
if [ -z "${RUSTUP_TOOLCHAIN:-}" ] && have rustup && ! (cd "$root" && rustc --version) >/dev/null 2>&1; then
    RUSTUP_TOOLCHAIN=$(rustup default 2>/dev/null | cut -d' ' -f1) || true
    if [ -n "$RUSTUP_TOOLCHAIN" ]; then export RUSTUP_TOOLCHAIN; else unset RUSTUP_TOOLCHAIN; fi
fi

# The Python that has pip: the caller's, or Debian's beside it.
find_python() {
    local candidate
    for candidate in python3 "${KB_ROOT:-}/usr/bin/python3"; do
        if "$candidate" -m pip --version >/dev/null 2>&1; then printf '%s\n' "$candidate"; return; fi
    done
    return 1
}

# gain_root COMMAND: makes sure that as_root will work, which COMMAND needs; else says in a line what to do.
gain_root() {
    if is_root || sudo -n true 2>/dev/null || { have sudo && sudo -v; }; then return; fi
    die "this needs root, and there is no sudo that gives it: run as root: $1"
}

as_root() { if is_root; then "$@"; else sudo "$@"; fi; }

# The server refuses to run as root: then it runs as user postgres, who may not enter this directory.
as_server() {
    if is_root; then (cd / && runuser -u postgres -- "$@"); else "$@"; fi
}

# place FILE DEST: replaces DEST by FILE where they differ: as a new file, since a running server may have the old one
# mapped, and in one step, so that nobody ever finds half of it.
place() {
    local dir=${2%/*} mode=644 run=() new
    if cmp -s "$1" "$2"; then return; fi
    case $2 in *.so | */bin/* | */kb-extract) mode=755 ;; esac
    mkdir -p "$dir" 2>/dev/null || true
    if [ ! -w "$dir" ]; then
        gain_root "install -D -m $mode '$1' '$2'"
        run=(as_root)
    fi
    new=$2.new
    "${run[@]}" install -D -m "$mode" "$1" "$new"
    "${run[@]}" mv -f "$new" "$2"
}

# place_all STAGE NAME: places what STAGE holds of / with names like NAME.
place_all() {
    local file
    while IFS= read -r file <&3; do place "$1$file" "$file"; done 3< <(cd "$1" && find . -type f -name "$2" -printf '/%P\n')
}

# at_least VERSION LEAST
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

known_major() { case " ${KB_MAJORS[*]} " in *" $1 "*) ;; *) return 1 ;; esac; }

# A server is known by its pg_config. Debian's is at the same place for each major, and comes with the client already.
debian_server() { printf '%s\n' "${KB_ROOT:-}/usr/lib/postgresql/$1/bin/pg_config"; }
server_major() { "$1" --version 2>/dev/null | sed -nE 's/^PostgreSQL ([0-9]+).*/\1/p'; }
has_server() { [ -x "$1" ] && [ -x "$("$1" --bindir)/initdb" ] && [ -x "$("$1" --bindir)/postgres" ]; }
# pgxs.mk is no sign of headers: it comes with the server.
has_headers() { [ -x "$1" ] && [ -f "$("$1" --includedir-server)/postgres.h" ]; }
has_pgvector() {
    local extension version
    extension=$("$1" --sharedir)/extension
    version=$(sed -nE "s/^ *default_version *= *'([^']*)'.*/\1/p" "$extension/vector.control" 2>/dev/null) || return 1
    at_least "$version" "$PGVECTOR_LEAST" && [ -f "$extension/vector--$version.sql" ] && [ -f "$("$1" --pkglibdir)/vector.so" ]
}

# The newest of Debian's servers that lacks nothing; else the newest that lacks only pgvector.
newest_server() {
    local test major candidate
    for test in has_pgvector true; do
        for major in "${KB_MAJORS[@]}"; do
            candidate=$(debian_server "$major")
            if has_server "$candidate" && has_headers "$candidate" && "$test" "$candidate"; then
                printf '%s\n' "$candidate"
                return
            fi
        done
    done
    return 1
}

# Sets PG_CONFIG (unless given), PG_MAJOR and PG_BIN; fails when there is no server to build for.
find_pg() {
    local given=${PG_CONFIG:-} advice="give the path of a server's pg_config, or unset PG_CONFIG"
    if [ -n "$given" ]; then
        PG_CONFIG=$(type -P "$given") || die "PG_CONFIG=$given is no program: $advice"
        PG_CONFIG=$(realpath -s "$PG_CONFIG")
    else
        PG_CONFIG=$(newest_server) || return 1
    fi
    PG_MAJOR=$(server_major "$PG_CONFIG")
    known_major "${PG_MAJOR:-none}" ||
        die "PG_CONFIG=$given is ${PG_MAJOR:+of PostgreSQL $PG_MAJOR, }not of PostgreSQL ${KB_MAJORS[*]}: $advice"
    PG_BIN=$("$PG_CONFIG" --bindir)
    # pgrx compiles for the server that this names.
    PGRX_PG_CONFIG_PATH=$PG_CONFIG
    export PG_CONFIG PG_MAJOR PG_BIN PGRX_PG_CONFIG_PATH
}

# Sets KB_SCRATCH, the place for what the server reads and writes: .scratch of this checkout, unless the
# server's user cannot enter it, a socket's path (107 bytes at most) would grow too long in it, or its name has
# characters that a configuration file or a connection string would have to quote.
name_scratch() {
    if [ -z "${KB_SCRATCH:-}" ]; then
        KB_SCRATCH=$root/.scratch
        local inner=$KB_SCRATCH
        [ -e "$inner" ] || inner=$root
        if [ ${#KB_SCRATCH} -gt 50 ] || ! plain_path "$KB_SCRATCH" || [ ! -O "$inner" ] || ! as_server test -x "$inner" 2>/dev/null; then
            KB_SCRATCH=/var/tmp/kb-$(id -u)-$(printf %s "$root" | cksum | cut -d' ' -f1)
        fi
    fi
    KB_MODEL_DIR=$KB_SCRATCH/models
    export KB_SCRATCH KB_MODEL_DIR
}

plain_path() { case $1 in *[!A-Za-z0-9/._-]*) return 1 ;; esac; }

find_scratch() {
    name_scratch
    plain_path "$KB_SCRATCH" || die "KB_SCRATCH=$KB_SCRATCH has characters other than A-Z a-z 0-9 / . _ -; set it to another directory"
    mkdir -p "$root/.scratch" "$KB_SCRATCH"
    [ -O "$KB_SCRATCH" ] || die "$KB_SCRATCH belongs to somebody else; set KB_SCRATCH to another directory"
}

# What every script but setup.sh starts with.
need_setup() {
    find_pg || die "no PostgreSQL with headers found: run make setup, or set PG_CONFIG"
    find_scratch
}
