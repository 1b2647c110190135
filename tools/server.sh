# What is there of each PostgreSQL server, and which one to take. Only looks. Sourced by env.sh.
# KB_ROOT, a directory, stands for / in the tests.
# shellcheck shell=bash

KB_MAJORS=(18 17 16 15)
PGVECTOR_LEAST=0.8
# Before this one indexes can be corrupted, see kb.health(): a package that is older is not installed.
# shellcheck disable=SC2034
PGVECTOR_SOUND=0.8.4

# at_least VERSION LEAST
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

server_major() { "$1" --version 2>/dev/null | sed -nE 's/^PostgreSQL ([0-9]+).*/\1/p'; }

known_major() { case " ${KB_MAJORS[*]} " in *" $1 "*) ;; *) return 1 ;; esac; }

# given_server PG_CONFIG: prints its full path; or what is wrong with it, in a line, and fails.
given_server() {
    local path=$1 major problem=
    case $path in
        /*) ;;
        */*) path=$PWD/$path ;;
        *) path=$(type -P "$path" || printf %s "$path") ;;
    esac
    if [ ! -f "$path" ] || [ ! -x "$path" ]; then
        problem="is no program: give the path of a server's pg_config"
    else
        major=$(server_major "$path")
        if [ -z "$major" ]; then
            problem="does not answer as pg_config does: give the path of a server's pg_config"
        elif ! known_major "$major"; then
            problem="is of PostgreSQL $major; kb is for ${KB_MAJORS[*]}: give another one's"
        fi
    fi
    [ -z "$problem" ] || { printf '%s\n' "PG_CONFIG=$1 $problem, or unset PG_CONFIG"; return 1; }
    printf '%s\n' "$path"
}

# The version of the pgvector that a server has, if all of it is there.
pgvector_version() {
    local extension version
    extension=$("$1" --sharedir)/extension
    version=$(sed -nE "s/^ *default_version *= *'([^']*)'.*/\1/p" "$extension/vector.control" 2>/dev/null) || true
    if [ -n "$version" ] && [ -f "$extension/vector--$version.sql" ] && [ -f "$("$1" --pkglibdir)/vector.so" ]; then
        printf '%s\n' "$version"
    fi
}

# server_lacks PG_CONFIG: which of server, headers, pgvector it has not; an empty line when it has all.
server_lacks() {
    local bin lacks=() version
    bin=$("$1" --bindir)
    if [ ! -x "$bin/initdb" ] || [ ! -x "$bin/postgres" ]; then lacks+=(server); fi
    # pgxs.mk is no sign of headers: it comes with the server.
    [ -f "$("$1" --includedir-server)/postgres.h" ] || lacks+=(headers)
    version=$(pgvector_version "$1")
    if [ -z "$version" ] || ! at_least "$version" "$PGVECTOR_LEAST"; then lacks+=(pgvector); fi
    printf '%s\n' "${lacks[*]}"
}

# Debian's place for a major's pg_config; it comes with the client, before server and headers.
debian_server() { printf '%s\n' "${KB_ROOT:-}/usr/lib/postgresql/$1/bin/pg_config"; }

# newest_lacking LACKS: the newest installed server that lacks just that.
newest_lacking() {
    local major candidate
    for major in "${KB_MAJORS[@]}"; do
        candidate=$(debian_server "$major")
        if [ -x "$candidate" ] && [ -n "$(server_major "$candidate")" ] && [ "$(server_lacks "$candidate")" = "$1" ]; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    return 1
}

# The newest that needs nothing; else the newest that needs only pgvector.
newest_server() { newest_lacking "" || newest_lacking pgvector; }
