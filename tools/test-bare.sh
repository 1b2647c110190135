#!/usr/bin/env bash
# make demo, make test and make deb in bare Debians: each case in a folder of its own, made by debootstrap from the mirrors apt uses here.
# Needs root. Everything runs in namespaces of its own and ends with them; the Rust toolchain is this machine's, cargo's downloads
# and what it compiles are shared by the cases of one Debian. The results are in bench/bare.md.
# tools/test-bare.sh [CASE:DEBIAN...]; COMMANDS="demo" leaves out make test.
set -euo pipefail
# shellcheck source=tools/env.sh
. "$(dirname "$0")/env.sh"

bare=$root/.scratch/bare
COMMANDS=${COMMANDS:-demo test}

# prepare_CASE makes what the case has before: its user, the checkout, the environment of the commands (case_env), the line with
# which make demo must stop (case_expects), whether the demo comes from packages (case_packaged), or what runs in its place (case_demo).

# A server without its headers, what the first user had, with a pgvector older than 0.8 (no mirror has one: it is the names of its
# files, as setup finds them); its own cluster runs and is afterwards as it was; root; a checkout whose path has spaces.
prepare_headers_missing() {
    local extension=$case_root/usr/share/postgresql/$case_major/extension
    case_checkout="/srv/my own projects/kb (1)"
    case_apt "postgresql-$case_major" libpq-dev gcc libc6-dev python3
    in_case pg_ctlcluster "$case_major" main start >>"$case_log" 2>&1
    system_cluster >"$case_dir/system-cluster"
    printf '%s\n' "comment = 'vector data type'" "default_version = '0.7.4'" >"$extension/vector.control"
    touch "$extension/vector--0.7.4.sql" "$case_root/usr/lib/postgresql/$case_major/lib/vector.so"
}
check_headers_missing() { system_cluster | diff "$case_dir/system-cluster" -; }
system_cluster() {
    in_case runuser -u postgres -- psql --no-align --tuples-only \
        -c "SELECT pg_postmaster_start_time(), (SELECT string_agg(datname, ' ' ORDER BY oid) FROM pg_database),
            current_setting('shared_preload_libraries')"
}

# Nothing but make and sudo; a user with sudo, whose language is German.
prepare_german_user() {
    case_user joerg sudo
    case_checkout="/home/joerg/Übungen"
    case_env=(LANG=de_DE.UTF-8 LC_ALL=de_DE.UTF-8 LANGUAGE=de_DE:de)
    case_apt locales
    in_case sh -c 'echo de_DE.UTF-8 UTF-8 >>/etc/locale.gen && locale-gen && update-locale LANG=de_DE.UTF-8' >>"$case_log" 2>&1
}

# A user without sudo, where everything is missing.
prepare_no_sudo_nothing() {
    case_user ada
    case_checkout=/home/ada/kb
    case_expects='^kb: error: .*as root: apt-get update'
}

prepare_no_rust() {
    case_expects='^kb: error: cargo is missing: install Rust'
    umount "$case_root/opt/rust"
}

# Makes the packages with make deb, for the case packages.
prepare_deb() { case_demo=run_deb COMMANDS=demo; }

# Neither Rust nor a compiler, but the packages of make deb: the demo installs them, and their purge leaves nothing.
prepare_packages() {
    [ -d "$case_packages" ] || die "there are no packages for ${case_packages##*-}: run the case deb first"
    umount "$case_root/opt/rust"
    cp -r "$case_packages" "$case_root/srv/packages"
    case_env=(PACKAGES=/srv/packages)
    case_packaged=yes COMMANDS=demo
}
check_packages() {
    in_case env DEBIAN_FRONTEND=noninteractive apt-get -y purge kb kb-models "postgresql-$case_major-kb" || return 1
    local left
    left=$(find "$case_root/usr" "$case_root/etc" "$case_root/var/lib/postgresql" \( -name 'kb' -o -name 'kb.*' -o -name 'kb-*' \) -print)
    [ -z "$left" ] || { printf 'left: %s\n' "$left"; return 1; }
}

# make demo is killed with all it started, at each of its stages, when its output or setup's log has one of these lines: at the
# next run it goes on. In root's home, where user postgres may not go.
prepare_interrupted() { case_checkout=/root/kb; }
before_interrupted() {
    local stage make log=$case_log.now setup_log=$case_root$case_checkout/.scratch/setup.log
    for stage in 'apt-get install .*postgresql' 'Unpacking postgresql-[0-9]' 'Setting up postgresql-[0-9]' \
        'building pgvector|install postgresql-[0-9]+-pgvector' 'fetching the models' 'building kb' 'making a cluster'; do
        printf '== killed at: %s\n' "$stage" >>"$case_log"
        rm -f "$setup_log"
        as_case_user make demo >"$log" 2>&1 &
        make=$!
        while kill -0 "$make" 2>/dev/null && ! grep -qsE "$stage" "$log" "$setup_log"; do sleep 0.1; done
        # In this namespace there is nothing but the case: pid 1, which is this script, is spared.
        kill -9 -1 2>/dev/null || true
        wait "$make" 2>/dev/null || true
        cat "$log" >>"$case_log"
    done
}

# case_user NAME [sudo]: the commands are run by this user, who may use sudo.
case_user() {
    case_user=$1
    in_case useradd --create-home --shell /bin/bash "$1"
    if [ "${2:-}" = sudo ]; then
        case_apt sudo
        printf '%s ALL=(ALL:ALL) NOPASSWD: ALL\n' "$1" >"$case_root/etc/sudoers.d/$1"
    fi
}

case_apt() {
    in_case env DEBIAN_FRONTEND=noninteractive sh -c 'apt-get update && apt-get install -y --no-install-recommends "$@"' \
        sh "$@" >>"$case_log" 2>&1 || die "the case's packages cannot be installed: $case_log"
}

# in_case COMMAND...: in the case's Debian, as root, with nothing of the caller's environment but how to reach the network.
in_case() {
    local network=() name
    while IFS= read -r name; do network+=("$name=${!name}"); done < <(
        compgen -e | grep -iE '^(https?_proxy|no_proxy|PIP_.*|SSL_CERT_.*|CARGO_HTTP_.*)$' || true)
    chroot "$case_root" env -i "${network[@]}" PATH=/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        TERM=dumb "$@" </dev/null
}

# The case's user, in the checkout, with the case's environment.
as_case_user() {
    local home=/root run=()
    if [ "$case_user" != root ]; then home=/home/$case_user run=(runuser -u "$case_user" --); fi
    # Cargo's folder has one path for all users: dependencies are compiled again where it has another.
    # shellcheck disable=SC2016
    in_case "${run[@]}" env "HOME=$home" "USER=$case_user" "LOGNAME=$case_user" CARGO_HOME=/opt/cargo "${case_env[@]}" \
        bash -c 'cd "$1" && shift && exec "$@"' bash "$case_checkout" "$@"
}

# The bare folder, made once: moved into place when it is whole.
make_debian() {
    local suite=$1 debian=$bare/debian/$1 sites mirror security
    [ ! -d "$debian" ] || return 0
    # shellcheck disable=SC2016
    sites=$(apt-get indextargets --format '$(LABEL) $(SITE)' 'Created-By: Packages' 'Origin: Debian' | sort -u)
    mirror=$(sed -n 's/^Debian //p' <<<"$sites" | head -n 1)
    security=$(sed -n 's/^Debian-Security //p' <<<"$sites" | head -n 1)
    [ -n "$mirror" ] || die "apt here has no Debian mirror to take bare Debians from"
    say "debootstrap $suite"
    rm -rf "$debian.new"
    mkdir -p "$debian.new"
    # Its mounts end with it, also when it is killed.
    unshare --mount debootstrap --variant=minbase --include=make "$suite" "$debian.new" "$mirror" \
        >"$bare/logs/debootstrap-$suite.log" 2>&1 || die "debootstrap $suite failed: $bare/logs/debootstrap-$suite.log"
    {
        printf 'deb %s %s main\n' "$mirror" "$suite" "$mirror" "$suite-updates"
        [ -z "$security" ] || printf 'deb %s %s-security main\n' "$security" "$suite"
    } >"$debian.new/etc/apt/sources.list"
    # As images for containers come: without apt's lists.
    rm -rf "$debian.new"/var/lib/apt/lists/*
    # Nor does a package start its server there: the ports are this machine's.
    printf '#!/bin/sh\nexit 101\n' >"$debian.new/usr/sbin/policy-rc.d"
    chmod +x "$debian.new/usr/sbin/policy-rc.d"
    # This machine's way to the network.
    cp /etc/hosts /etc/resolv.conf "$debian.new/etc/"
    cp -a /usr/local/share/ca-certificates "$debian.new/usr/local/share/" 2>/dev/null || true
    cp /etc/pip.conf "$debian.new/etc/" 2>/dev/null || true
    cp /etc/apt/apt.conf.d/*proxy* "$debian.new/etc/apt/apt.conf.d/" 2>/dev/null || true
    mv "$debian.new" "$debian"
}

# Mounts the case's Debian over the bare one. In the case's own namespace.
mount_case() {
    mkdir -p "$case_dir/upper" "$case_dir/work" "$case_root"
    mount -t overlay overlay -o "lowerdir=$bare/debian/$1,upperdir=$case_dir/upper,workdir=$case_dir/work" "$case_root"
    mount -t proc proc "$case_root/proc"
    mount --rbind /dev "$case_root/dev"
    mount -t tmpfs tmpfs "$case_root/dev/shm"
    mkdir -p "$case_root/opt/rust" "$case_root/opt/cargo" "$bare/cargo-$1" "$bare/target-$1" "$bare/apt-$1/partial"
    mount --bind "$(rustc --print sysroot)" "$case_root/opt/rust"
    mount -o remount,bind,ro "$case_root/opt/rust"
    mount --bind "$bare/cargo-$1" "$case_root/opt/cargo"
    mount --bind "$bare/apt-$1" "$case_root/var/cache/apt/archives"
}

# Puts the checkout there: what git does not ignore; of that, deleted files are missed.
copy_checkout() {
    mkdir -p "$case_root$case_checkout/target"
    (cd "$root" && git ls-files -z --cached --others --exclude-standard |
        tar -c --null --ignore-failed-read --files-from - 2>/dev/null) | tar -x -C "$case_root$case_checkout"
    mount --bind "$bare/target-$1" "$case_root$case_checkout/target"
    chown -R "$(in_case id -u "$case_user")" "$bare/cargo-$1" "$bare/target-$1" "$case_root$case_checkout"
}

# A row's cell for make demo: the demo answers three questions, one more in three ways (a row of ranks), and cites passages in
# a context (with where a citation is from, but without the characters where these would leave no room for more text). An answer from
# the folder names a page. A preference is recalled, and enters the prompt of an answer with citations.
run_demo() {
    local began=$SECONDS log=$case_log.demo
    as_case_user timeout 5400 make demo >"$log" 2>&1 ||
        { printf 'stops: %s\n' "$(grep -E 'error' "$log" | tail -n 1 | cut -c 1-300)"; return 1; }
    [ "$(grep -cE '^  1\. .*\(score ' "$log")" = 3 ] || { printf 'did not answer 3 questions\n'; return 1; }
    grep -qE '^  +[0-9-]+ +[0-9-]+ +[0-9-]+  [^ ]+\.html: ' "$log" ||
        { printf 'did not answer one question three ways\n'; return 1; }
    grep -qE '^  id: [^ ]+\.html(, characters: [0-9]+-[0-9]+)?$' "$log" || { printf 'cited nothing in a context\n'; return 1; }
    grep -qE '^  [12]\. debian/.*, page [0-9]+: ' "$log" || { printf 'named no page of a PDF\n'; return 1; }
    grep -qE '^  The reader prefers .* \(score [0-9.]+\)$' "$log" || { printf 'recalled no preference\n'; return 1; }
    # The stub that takes a chat model's place is in no package.
    if [ -z "$case_packaged" ] && { ! grep -qE '^  .* \[[0-9]+\]\.$' "$log" || ! grep -qE '^  \[[0-9]+\] [^ ]+\.html, ' "$log" ||
        ! grep -qE '^  Its prompt had [1-9][0-9]* passages, and the preference: The reader ' "$log"; }; then
        printf 'gave no answer with citations\n'
        return 1
    fi
    as_case_user make demo-stop >>"$log" 2>&1 || { printf 'make demo-stop failed\n'; return 1; }
    printf 'ok, 3 answers, one cited; %s s\n' "$((SECONDS - began))"
}

# A row's cell for make deb: how many packages it made, of which lintian reports no error.
run_deb() {
    local began=$SECONDS log=$case_log.demo
    as_case_user timeout 7200 make deb >"$log" 2>&1 ||
        { printf 'make deb stops: %s\n' "$(grep -E 'error' "$log" | tail -n 1 | cut -c 1-300)"; return 1; }
    grep -q '^kb: lintian$' "$log" || { printf 'make deb ran no lintian\n'; return 1; }
    rm -rf "$case_packages"
    cp -r "$case_root$case_checkout/.scratch/packages" "$case_packages"
    printf 'make deb: ok, %s packages; %s s\n' "$(find "$case_packages" -name '*.deb' | wc -l)" "$((SECONDS - began))"
}

run_test() {
    local began=$SECONDS status=ok log=$case_log.test
    as_case_user timeout 7200 make test >"$log" 2>&1 || status=failed
    printf '%s; pg_regress: %s; cargo test: %s; %s s\n' "$status" \
        "$(sed -nE 's/^[# ]*(All [0-9]+ tests passed|[0-9]+ of [0-9]+ tests failed).*/\1/p' "$log" | tail -n 1)" \
        "$(sed -nE 's/^test result: .* ([0-9]+) passed; ([0-9]+) failed; ([0-9]+) ignored.*/\1 \2 \3/p' "$log" |
            awk '{ p += $1; f += $2; i += $3 } END { printf "%d passed, %d failed, %d ignored", p, f, i }')" \
        "$((SECONDS - began))"
    [ "$status" = ok ]
}

# One case on one Debian, in namespaces of its own. Its row in bench/bare.md is written anew.
run_case() {
    local name=$1 suite=$2 hook=${1//-/_} failed=0 demo='not run' tested='not run'
    case_log=$bare/logs/$name-$suite case_dir=$bare/case-$suite case_root=$bare/case-$suite/root
    case_packages=$bare/packages-$suite case_demo=run_demo
    case_user=root case_checkout=/srv/kb case_env=() case_expects='' case_packaged='' case_major=17
    [ "$suite" != bookworm ] || case_major=15
    rm -f "$case_log"*
    mount_case "$suite"
    "prepare_$hook"
    copy_checkout "$suite"
    if declare -F "before_$hook" >/dev/null; then "before_$hook"; fi
    if [ -n "$case_expects" ]; then
        demo=$(run_demo) || true
        grep -qE "$case_expects" "$case_log.demo" || failed=1
    else
        if [[ "$COMMANDS" == *demo* ]]; then demo=$("$case_demo") || failed=1; fi
        if [[ "$COMMANDS" == *test* ]]; then tested=$(run_test) || failed=1; fi
    fi
    if declare -F "check_$hook" >/dev/null && ! "check_$hook" >>"$case_log" 2>&1; then demo="$demo; check failed" failed=1; fi
    say "$name on $suite: demo: $demo; test: $tested"
    sed -i "/^| $name | $suite |/d" "$root/bench/bare.md"
    printf '| %s | %s | %s | %s | %s |\n' "$name" "$suite" "$(date -u +%F)" "$demo" "$tested" >>"$root/bench/bare.md"
    return "$failed"
}

is_root || die "test-bare needs root, for debootstrap and chroot"
if [ -n "${KB_BARE_INSIDE:-}" ]; then
    # A case kills every process that it sees.
    [ $$ = 1 ] || die "KB_BARE_INSIDE is set outside of a case's namespaces"
    run_case "$@"
    exit
fi

for program in debootstrap unshare git cargo rustc; do
    have "$program" || die "test-bare needs $program: apt-get install debootstrap, and Rust from https://rustup.rs"
done
cases=("$@")
[ $# -gt 0 ] || cases=(headers-missing:bookworm german-user:trixie interrupted:bookworm no-sudo-nothing:bookworm
    no-sudo-nothing:trixie no-rust:bookworm deb:bookworm packages:bookworm deb:trixie packages:trixie)
mkdir -p "$bare/logs"
failed=()
# unshare ignores these signals: with it dies all that is in the case. A shell that waits for a process in the background obeys them.
trap 'kill -KILL 0' INT TERM
for case in "${cases[@]}"; do
    name=${case%:*} suite=${case#*:}
    declare -F "prepare_${name//-/_}" >/dev/null || die "test-bare knows no case $name; as an example: ${cases[0]}"
    make_debian "$suite"
    rm -rf "$bare/case-$suite"
    say "case $name on $suite"
    # The case's processes and mounts end with it.
    KB_BARE_INSIDE=1 COMMANDS=$COMMANDS unshare --mount --pid --ipc --uts --fork --kill-child --mount-proc \
        "$root/tools/test-bare.sh" "$name" "$suite" &
    wait "$!" || failed+=("$case")
    rm -rf "$bare/case-$suite"
done
[ ${#failed[@]} -eq 0 ] || die "failed: ${failed[*]}; the logs are in $bare/logs"
say "test-bare: every case passed in $((SECONDS / 60)) minutes; results are in bench/bare.md"
