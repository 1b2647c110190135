#!/usr/bin/env bash
# What setup and lint do on made-up machines: tools/setup.sh and tools/lint.sh run there, with nothing on PATH but what the case
# has. No PostgreSQL, no apt, no network. Run in the root of the repository by tests/setup/main.rs; prints the cases that fail.
set -euo pipefail
# shellcheck source=tests/setup/machine.sh
. tests/setup/machine.sh
umask 022

# The programs that are the real ones.
REAL=(bash cat chmod cksum cmp cp cut date dirname env find flock grep gzip head install ln mkdir mv realpath rm sed sh sleep sort
    tail tar test touch tr true wc)
MADE_UP=(apt-cache apt-get cargo cc dpkg dpkg-deb git id make pkg-config python3 runuser rustc shellcheck)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
machines=0 failures=0
pins=$(root=.; . tools/pins.sh; printf %s "$MODEL_PINS")

# machine WHAT [CHECKOUT]: begins a case, on a new machine: root on a Debian 12 that has everything but PostgreSQL.
machine() {
    machines=$((machines + 1))
    what=$1 checkout=$work/$machines/${2:-kb} settings=()
    export KB_ROOT=$work/$machines/root
    mkdir -p "$checkout" "$KB_ROOT/bin" "$KB_ROOT/usr/lib/apt"
    cp -r tools Cargo.toml "$checkout"
    cp tests/setup/machine.sh "$KB_ROOT"
    chmod +x "$KB_ROOT/machine.sh"
    local name
    for name in "${REAL[@]}"; do ln -s "$(type -P "$name")" "$KB_ROOT/bin/$name"; done
    for name in "${MADE_UP[@]}"; do program "$name"; done
    ln -s "$KB_ROOT/machine.sh" "$KB_ROOT/usr/lib/apt/apt-helper"
    for name in libc6-dev ca-certificates libclang-dev; do apt "$name 1" && install_package "$name"; done
    apt "postgresql 15" "postgresql-15 15.18" "postgresql-server-dev-15 15.18"
    file user 0
    file scratch/models/.pins "$pins"
    file scratch/manual/index.html
    file scratch/documents/package/document.pdf
}

# The same with the whole PostgreSQL 15 of Debian.
whole() { machine "$@" && postgres 15 server headers 0.8.0; }

# apt LINE...: packages that apt knows besides.
apt() { printf '%s\n' "$@" >>"$KB_ROOT/apt"; }

without() { (cd "$KB_ROOT" && rm -r "$@"); }

# user [sudo]: not root any more.
user() {
    file user 1000
    # Its checkout is not root's.
    file bin/find.new "case \$* in *-user*) ;; *) exec $(type -P find) \"\$@\" ;; esac"
    chmod +x "$KB_ROOT/bin/find.new"
    mv "$KB_ROOT/bin/find.new" "$KB_ROOT/bin/find"
    if [ $# -gt 0 ]; then program sudo; fi
}

fail() {
    printf '%s\n  %s\n' "$what" "$*"
    failures=$((failures + 1))
}

# in_machine COMMAND...: in the checkout, in a process group of its own.
in_machine() {
    (cd "$checkout" && exec setsid --wait env -i PATH="$KB_ROOT/bin" HOME="$KB_ROOT" CARGO_HOME="$KB_ROOT/cargo" \
        KB_ROOT="$KB_ROOT" KB_SCRATCH="$KB_ROOT/scratch" "${settings[@]}" "$@" 2>&1)
}

# run SCRIPT ARGUMENT...: a script of tools/. Its messages are said, between bars; bash warns of a locale that is not there before
# it reads a script.
run() {
    status=0
    said=$(in_machine bash "tools/$1" "${@:2}") || status=$?
    said=$(sed '/setlocale/d; s/^kb: //; s/$/ |/' <<<"$said" | tr '\n' ' ')
    said=${said//$KB_ROOT/}
    said=${said% | }
}

# does PATTERN [PART...]: setup succeeds and says this. When it is run again, it has nothing to do.
does() {
    run setup.sh "${@:2}"
    # shellcheck disable=SC2053
    if [ "$status" != 0 ] || [[ $said != $1 ]]; then fail "$said, not: $1"; return; fi
    run setup.sh "${@:2}"
    if [ "$status$said" != 0 ]; then fail "the second run: $said"; fi
}

# stops PATTERN [PART...]: setup stops, and says this in one line.
stops() {
    run setup.sh "${@:2}"
    # shellcheck disable=SC2053
    if [ "$status" = 0 ] || [[ $said != *'error: '$1 || $said == *error:*' | '* ]]; then fail "$said, not an error: $1"; fi
}

# is FILE TEXT: it holds this.
is() { if [ "$(cat "$KB_ROOT/$1" 2>&1)" != "$2" ]; then fail "$1 is not $2"; fi; }

# What kills setup with all its processes, once.
# shellcheck disable=SC2016
KILL='if [ ! -e "$KB_ROOT/killed" ]; then : >"$KB_ROOT/killed"; kill -9 0; fi'
# goes_on PATTERN: setup is killed, and does this when it is run again.
goes_on() {
    run setup.sh
    if [ "$status" != 137 ]; then fail "setup was not killed: $said"; fi
    does "$1"
}

whole "Where nothing is missing, setup does nothing."
does ""

for user in root sudo; do
    machine "On a bare Debian, $user gets everything; apt's lists are empty, as in an image for containers."
    [ "$user" = root ] || user sudo
    without bin/{cc,make,pkg-config,python3} usr/include usr/lib/llvm-14 etc scratch/{models,manual}
    apt "gcc 1" "make 1" "pkg-config 1" "python3-pip 1"
    mv "$KB_ROOT/apt" "$KB_ROOT/newer"
    : >"$KB_ROOT/apt"
    does "apt-get update | apt-get install gcc libc6-dev make pkg-config ca-certificates libclang-dev python3-pip \
postgresql-15 postgresql-server-dev-15 | building pgvector 0.8.6 | fetching the models (100 MB) | fetching postgresql-doc-15"
    is scratch/models/model whole
    is scratch/manual/index.html whole
done

machine "Without sudo a line says what root must run."
user
without bin/cc
stops "*root: apt-get update && apt-get install -y gcc postgresql-15 postgresql-server-dev-15"
postgres 15 server 0.8.0
stops "*root: apt-get update && apt-get install -y gcc postgresql-server-dev-15"
: >"$KB_ROOT/apt"
stops "*root: apt-get update && apt-get install -y gcc postgresql postgresql-server-dev-all"

whole "A user without sudo needs none where nothing is missing."
user
does ""

machine "A server without headers gets its own headers."
postgres 15 server 0.8.0
postgres 17
apt "postgresql-server-dev-17 1"
does "apt-get install postgresql-server-dev-15"

machine "A server whose headers apt does not know is passed over for Debian's own."
postgres 16 server 0.8.0
does "apt-get install postgresql-15 postgresql-server-dev-15 | building pgvector 0.8.6"

whole "Of several servers the newest that lacks nothing is taken, and else the newest that lacks only pgvector."
# shellcheck disable=SC2016
taken() { in_machine bash -c '. tools/env.sh && find_pg && echo "$PG_MAJOR"' >"$KB_ROOT/taken" && is taken "$1"; }
postgres 14 server headers 0.8.0
postgres 16 server headers
postgres 17 server headers 0.7.0
postgres 18 server 0.8.0
does ""
taken 15
without usr/lib/postgresql/15/include
does "building pgvector 0.8.6"
taken 17

# A package does not go over what may have been built from source.
while read -r there version expected; do
    machine "pgvector where the server has $there, and apt $version."
    postgres 15 server headers
    [ "$there" = none ] || postgres 15 "$there"
    apt "postgresql-15-pgvector $version"
    does "$expected"
done <<'END'
none 0.8.3-1 building pgvector 0.8.6
none 0.8.4-2.pgdg12+1 apt-get install postgresql-15-pgvector
0.7.4 0.8.6-1 building pgvector 0.8.6
0.8 0.8.6-1
0.10.1 0.8.6-1
END

for part in lib/vector.so share/extension/vector--0.8.0.sql share/extension/vector.control; do
    whole "A pgvector without $part is none."
    without "usr/lib/postgresql/15/$part"
    does "building pgvector 0.8.6"
done

whole "PG_CONFIG decides over Debian's servers."
postgres_in opt/pg 16 server headers
apt "postgresql-16-pgvector 0.8.6-1"
settings=(PG_CONFIG="$KB_ROOT/opt/pg/bin/pg_config")
does "building pgvector 0.8.6"
is opt/pg/lib/vector.so 0.8.6

machine "Debian's server gets what it lacks, also by another pg_config."
postgres 17 server headers 0.8.0
postgres 15 server
apt "postgresql-15-pgvector 0.8.6-1"
program pg_config "exec '$KB_ROOT/usr/lib/postgresql/15/bin/pg_config' \"\$@\""
settings=(PG_CONFIG=pg_config)
does "apt-get install postgresql-server-dev-15 | apt-get install postgresql-15-pgvector"

whole "A wrong PG_CONFIG is refused."
file opt/plain
postgres_in opt/14 14 server headers
postgres_in opt/16 16 headers
postgres_in opt/17 17 server
while read -r path why; do
    settings=(PG_CONFIG="$KB_ROOT/$path")
    stops "PG_CONFIG=/$path*$why*"
done <<'END'
nowhere/pg_config is no program: *unset PG_CONFIG
opt is no program
opt/plain is no program
bin/cc is not of PostgreSQL 18 17 16 15
opt/14/bin/pg_config is of PostgreSQL 14, not of PostgreSQL 18 17 16 15
opt/16/bin/pg_config missing of /opt/16/bin/postgres
opt/17/bin/pg_config /opt/17/include/postgres.h
END

machine "A checkout of any name, and a language that apt speaks, change nothing." "my own/Übung (1) & \"more\", it's"
postgres 15 server 0.8.0
settings=(LANG=de_DE.UTF-8 LC_ALL=nonsense LANGUAGE=de:fr)
# shellcheck disable=SC2016
program apt-cache '[ "$LC_ALL${LANGUAGE:-}" = C.UTF-8 ] || exit 0'
does "apt-get install postgresql-server-dev-15"

for name in kb "my own kb" "Übung" "it's" kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk; do
    machine "The place of a cluster is the checkout, unless its path would not do: $name." "$name"
    settings=(KB_SCRATCH=)
    # shellcheck disable=SC2016
    scratch=$(in_machine bash -c '. tools/env.sh && name_scratch && echo "$KB_SCRATCH"')
    [[ $scratch == "$([ "$name" = kb ] && echo "$checkout/.scratch" || echo /var/tmp/kb-)"* ]] || fail "$scratch"
done

whole "Without Rust, or with an old one, setup stops."
program rustc "echo 'rustc 1.63.0 (abc 2022-01-01)'; exit"
stops "Rust 1.63.0 is too old: install 1.95*"
program rustc "echo 'error: no default toolchain' >&2; exit 1"
stops "rustc does not run: install Rust 1.95*"
without bin/cargo
stops "cargo is missing: install Rust 1.95*https://rustup.rs*"

whole "A pinned Rust that rustup cannot get gives way to the user's default."
program rustup "[ \"\$*\" != default ] || echo 'stable-x86_64 (default)'"
program rustc "[ \"\${RUSTUP_TOOLCHAIN:-}\" = stable-x86_64 ] || exit 1"
does ""

whole "Without apt a line says what is missing."
without bin/{apt-get,apt-cache} scratch/manual
stops "*no apt-get: unpack its directory html as /scratch/manual"
without bin/cc
stops "*no apt-get: gcc: *"
without usr/lib/postgresql
stops "no PostgreSQL with headers found, and no apt-get: *PG_CONFIG"

machine "kb is not for the PostgreSQL of some Debians."
file apt "postgresql 13"
stops "*apt has PostgreSQL 13; kb is for 18 17 16 15*PG_CONFIG"

machine "A user who may not write to a server stops where its pgvector is too old."
postgres 15 server headers 0.7.4
user
program pg_config "[ \"\$1\" != --pkglibdir ] || set -- --nothing; exec '$KB_ROOT/usr/lib/postgresql/15/bin/pg_config' \"\$@\""
settings=(PG_CONFIG=pg_config)
stops "pgvector 0.8 or newer is missing*sudo"

whole "Root's server needs a user who may run it."
program runuser "exit 1"
stops "*user postgres*useradd --system postgres"

whole "Files that sudo left in the checkout are root's to give back."
mkdir -p "$checkout/target/debug"
# Nobody's files have this id.
file user 54321
stops "*/target belongs to another user: run as root: chown -R ada *"

whole "What lint checks with is installed by a part of its own."
without bin/{git,shellcheck}
apt "shellcheck 1" "git 1"
does "apt-get install shellcheck git | fetching cargo-deny" lint
stops "setup.sh knows no part nonsense: pgvector models manual documents lint clients deb" nonsense

whole "So is what the tests of the clients run on."
apt "nodejs 18" "npm 9"
does "apt-get install nodejs npm" clients

whole "What makes packages, too."
apt "dpkg-dev 1" "binutils 1" "lintian 1"
does "apt-get install dpkg-dev binutils lintian" deb

whole "The demo of packages fetches its documents without a compiler and without Rust."
without bin/{cargo,rustc,cc,make,pkg-config} usr/include scratch/manual
does "fetching postgresql-doc-15" manual

whole "A failure is one line with its reason."
without bin/cc
program apt-get "echo 'much output'; echo 'E: Failed to fetch gcc: no route to host' >&2; exit 100"
stops "*failed (E: Failed to fetch gcc: no route to host)*"

# half_installed: the installation of gcc is killed, and until dpkg has repaired that, apt installs nothing.
half_installed() {
    whole "$@"
    without bin/cc
    apt "gcc 12"
    program dpkg ": >\"\$KB_ROOT/repaired\""
    program apt-get "if [[ \$* == *'install gcc' && ! -e \$KB_ROOT/repaired ]]; then
        $KILL
        echo 'E: dpkg was interrupted' >&2
        exit 100
    fi"
}
half_installed "Setup goes on where it was killed at the installation of packages."
goes_on "the installation of packages was interrupted: going on with it | apt-get install gcc"
half_installed "The same where what was missing is there, but dpkg has not configured it."
program apt-get "case \$* in *'install gcc') program cc; $KILL ;; esac"
goes_on "the installation of packages was interrupted: going on with it"
is repaired ""
half_installed "A dpkg that somebody else has interrupted is repaired when it is needed."
: >"$KB_ROOT/killed"
does "apt-get install gcc | apt-get update"

for part in vector.so vector--0.8.6.sql vector.control; do
    machine "Setup goes on where it was killed when $part was moved into place."
    postgres 15 server headers 0.7.4
    program mv "case \$* in */$part) $KILL ;; esac; exec $(type -P mv) \"\$@\""
    goes_on "building pgvector 0.8.6"
    is usr/lib/postgresql/15/lib/vector.so 0.8.6
done

whole "Setup goes on where it was killed when the models were unpacked."
file scratch/models/.pins "older ones"
program python3 "case \$* in *unpack-models.py*) mkdir -p \"\$3\"; echo half >\"\$3/model\"; $KILL ;; esac"
goes_on "fetching the models (100 MB)"
is scratch/models/model whole

whole "Setup goes on where it was killed when the manual was unpacked."
without scratch/manual
program dpkg-deb "(KB_ROOT=\$3; file usr/share/doc/postgresql-doc-15/html/index.html half); $KILL"
goes_on "fetching postgresql-doc-15"
is scratch/manual/index.html whole

# documents_of WHAT LINE...: a machine whose apt has these packages, which hold these documents: "package path text".
documents_of() {
    whole "$1"
    printf '%s\n' "${@:2}" >"$KB_ROOT/documents"
    # shellcheck disable=SC2016
    program apt-cache 'if [ "$1" = madison ]; then
        cut -d" " -f1 "$KB_ROOT/documents" | sed "s/.*/ & | 1 | a mirror/"; exit
    fi'
    # shellcheck disable=SC2016
    program apt-get 'if [ "$1" = download ]; then for word in "${@:2}"; do : >"${word}_1_all.deb"; done; exit; fi'
    # shellcheck disable=SC2016
    program dpkg-deb 'mkdir "$3"
        while read -r name path text; do
            if [ "$name" != "${3##*/}" ]; then continue; fi
            mkdir -p "$3/$(dirname "$path")"
            if [ -n "$text" ]; then printf "%s\n" "$text"; fi >"$3/$path"
            case $path in *.gz) gzip -c "$3/$path" >"$3/new" && mv "$3/new" "$3/$path" ;; esac
        done <"$KB_ROOT/documents"
        exit'
    run documents.sh "$KB_ROOT/shelf"
}
packages=()
for package in git-doc maint-guide debian-policy r-cran-rio r-cran-readr r-cran-readxl nodejs-doc r-cran-openxlsx python-odf-doc; do
    packages+=("$package usr/nothing.of-use $package")
done
documents_of "The documents of the demo are what Debian's packages have." "${packages[@]}" "simh usr/share/doc/simh/vax.pdf a page" \
    "r-cran-tm usr/tm/texts/empty.xml" "r-cran-tm usr/tm/texts/acq/reut-1.xml.gz a report"
is shelf/simh/vax.pdf "a page"
is shelf/r-cran-tm/reut-1.xml "a report"
if [[ $said != *": 2 documents of 2 formats" ]]; then fail "$said"; fi
documents_of "A Debian that lacks most of their packages may have old lists of apt." "simh usr/share/doc/simh/vax.pdf a page"
if [[ $said != *"error: "*"apt-get update" || -e $KB_ROOT/shelf ]]; then fail "$said"; fi

# What make lint does before it compiles.
lint() {
    run lint.sh
    # shellcheck disable=SC2053
    if [[ $said != *$1 ]]; then fail "$said, not: $1"; fi
}
whole "Lint passes."
program cargo-deny
lint "lint: nothing found"
for name in cargo cargo-deny shellcheck; do
    whole "Lint fails where $name does."
    program cargo-deny
    # In the way in which cargo finds its subcommands.
    program cargo "[ \$1 != deny ] || exec cargo-deny"
    program "$name" "exit 1"
    run lint.sh
    if [ "$status" = 0 ]; then fail "$said"; fi
done
for name in git shellcheck cargo-deny; do
    whole "Lint fails where $name is missing."
    program cargo-deny
    without "bin/$name"
    lint "error: $name is missing*"
done
whole "Lint fails where a commit's subject has more than 72 characters, which are not bytes."
program cargo-deny
long=$(printf 'é%.0s' {1..72})
program git "[ \"\$3\" != log ] || printf '%s\n' 'abc1234 Short' 'def5678 $long'"
lint "lint: nothing found"
program git "[ \"\$3\" != log ] || printf '%s\n' 'abc1234 Short' 'def5678 ${long}é'"
lint "error: a subject has at most 72 characters: | def5678 *"

if [ "$failures" != 0 ]; then exit 1; fi
printf 'every case is as expected on %s machines\n' "$machines"
