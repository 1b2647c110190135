# What every script of the house knows: where things are and who does what. Sourced, never run.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
umask 022
export LC_ALL=C.UTF-8
PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin

# cargo-pgrx would pass rustflags of its own, and so build every dependency a second time beside the
# one that `cargo test` and `cargo build` use. The linkers of Debian 12 and later keep the section it
# worries about; where one did not, `cargo pgrx package` would say so.
export CARGO_PGRX_DISABLE_GC_SECTIONS_WORKAROUND=1

say() { printf 'kb: %s\n' "$*"; }
die() { printf 'kb: error: %s\n' "$*" >&2; exit 1; }

is_root() { [ "$(id -u)" -eq 0 ]; }

as_root() {
    if is_root; then "$@"
    elif command -v sudo >/dev/null; then sudo "$@"
    else die "this needs root: run it as root, or install sudo ($*)"; fi
}

# The server refuses to run as root: then it runs as user postgres, who may not enter this directory.
as_server() {
    if is_root; then (cd / && runuser -u postgres -- "$@"); else "$@"; fi
}

# Sets PG_CONFIG (the newest server with headers, unless given), PG_MAJOR and PG_BIN; fails when there is none.
find_pg() {
    local major candidate
    if [ -z "${PG_CONFIG:-}" ]; then
        for major in 18 17 16 15; do
            candidate=/usr/lib/postgresql/$major/bin/pg_config
            if [ -x "$candidate" ] && [ -x "${candidate%/*}/initdb" ] &&
                [ -f "$("$candidate" --includedir-server)/postgres.h" ]; then
                PG_CONFIG=$candidate
                break
            fi
        done
    fi
    [ -n "${PG_CONFIG:-}" ] || return 1
    [ -x "$PG_CONFIG" ] || die "PG_CONFIG=$PG_CONFIG is no program"
    PG_MAJOR=$("$PG_CONFIG" --version | sed -E 's/^PostgreSQL ([0-9]+).*/\1/')
    PG_BIN=$("$PG_CONFIG" --bindir)
    export PG_CONFIG PG_MAJOR PG_BIN
}

# Sets KB_SCRATCH, the place for what the server reads and writes: .scratch of this checkout, unless the
# server's user cannot enter it or a socket's path (107 bytes at most) would grow too long in it.
find_scratch() {
    mkdir -p "$root/.scratch"
    if [ -z "${KB_SCRATCH:-}" ]; then
        KB_SCRATCH=$root/.scratch
        if [ ${#KB_SCRATCH} -gt 50 ] || ! as_server test -x "$KB_SCRATCH" 2>/dev/null; then
            KB_SCRATCH=/var/tmp/kb-$(id -u)-$(printf %s "$root" | cksum | cut -d' ' -f1)
        fi
    fi
    mkdir -p "$KB_SCRATCH"
    [ -O "$KB_SCRATCH" ] || die "$KB_SCRATCH belongs to somebody else; set KB_SCRATCH to another directory"
    KB_MODEL_DIR=$KB_SCRATCH/models
    export KB_SCRATCH KB_MODEL_DIR
}

# What every script but setup.sh starts with.
need_setup() {
    find_pg || die "no PostgreSQL with headers found: run make setup, or set PG_CONFIG"
    find_scratch
}
