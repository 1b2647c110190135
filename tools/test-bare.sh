#!/usr/bin/env bash
# make demo and make test in bare Debians: each case in a folder of its own, made by debootstrap from the mirrors apt uses here.
# Needs root. Everything runs in namespaces of its own and ends with them; the Rust toolchain is this machine's, cargo's downloads
# and what it compiles are shared by the cases of one Debian. The two Debians go side by side, each one case after the other.
# tools/test-bare.sh [CASE...]; COMMANDS="demo" leaves out make test, SUITE=trixie the other Debian. The results are in
# bench/bare.md.
set -euo pipefail
# shellcheck source=tools/env.sh
. "$(dirname "$0")/env.sh"

bare=$root/.scratch/bare
COMMANDS=${COMMANDS:-demo,test}

# Name, Debian, the commands that are run, and when: each condition once in those that are run always, so that they end
# within two hours; the others when they are named. What tests/setup/plans.txt has is decided without a Debian.
CASES='headers-missing bookworm demo,test always
german-user trixie demo,test always
pgvector-old bookworm demo,test always
majors trixie demo,test always
no-sudo-nothing bookworm demo always
no-sudo-nothing trixie demo always
no-rust bookworm demo always
interrupted bookworm demo always
spaces bookworm demo,test named
headers-missing trixie demo,test named
interrupted trixie demo named'

is_root || die "test-bare needs root, for debootstrap and chroot"
[ -n "${KB_BARE_INSIDE:-}" ] || for program in debootstrap unshare git cargo rustc; do
    have "$program" || die "test-bare needs $program: apt-get install debootstrap, and Rust from https://rustup.rs"
done

# settings CASE: what the case is. case_env is the environment of the commands, case_expects the line with which make demo must
# stop; prepare_CASE runs when the case's Debian is mounted, check_CASE after the commands.
settings() {
    case_user=root case_checkout=/srv/kb case_env=() case_expects=
    case $1 in
        # A server without its headers, what the first user had, or nothing but make: root; a checkout whose path has spaces.
        headers-missing | spaces) case_checkout="/srv/my own projects/kb (1)" ;;
        # Nothing but make and sudo; a user with sudo, whose language is German.
        german-user)
            case_user=joerg case_checkout="/home/joerg/Übungen"
            case_env=(LANG=de_DE.UTF-8 LC_ALL=de_DE.UTF-8 LANGUAGE=de_DE:de)
            ;;
        # A pgvector older than 0.8; the system's own cluster runs on 5432 and is afterwards as it was; a user with sudo;
        # languages that are not installed.
        pgvector-old)
            case_user=ada case_checkout=/home/ada/kb
            case_env=(LANG=de_DE.UTF-8 LC_ALL=xx_YY.nonsense LANGUAGE=xx)
            ;;
        # Two majors; root, in root's home, where user postgres may not go; headers without pgvector.
        majors) case_checkout=/root/kb ;;
        # A user without sudo, where everything is missing.
        no-sudo-nothing)
            case_user=ada case_checkout=/home/ada/kb
            case_expects='^kb: error: .*as root: apt-get update'
            ;;
        no-rust) case_expects='^kb: error: cargo is missing: install Rust' ;;
    esac
}

# Debian's own PostgreSQL.
case_major() { case $suite in bookworm) echo 15 ;; *) echo 17 ;; esac; }

sudoer() {
    case_apt sudo
    printf '%s ALL=(ALL:ALL) NOPASSWD: ALL\n' "$case_user" >"$case_root/etc/sudoers.d/$case_user"
}

prepare_headers_missing() { case_apt "postgresql-$(case_major)" libpq-dev gcc libc6-dev python3; }

prepare_german_user() {
    sudoer
    case_apt locales
    in_case sh -c 'echo de_DE.UTF-8 UTF-8 >>/etc/locale.gen && locale-gen && update-locale LANG=de_DE.UTF-8' \
        >>"$case_log-prepare.log" 2>&1
}

# No mirror has a pgvector older than 0.8: it is the names of its files, as setup would find them.
prepare_pgvector_old() {
    local server
    server=$case_root/usr/share/postgresql/$(case_major)/extension
    sudoer
    case_apt "postgresql-$(case_major)" "postgresql-server-dev-$(case_major)"
    in_case sh -c "pg_ctlcluster $(case_major) main start || pg_ctlcluster $(case_major) main status" \
        >>"$case_log-prepare.log" 2>&1
    system_cluster >"$case_dir/system-cluster"
    printf '%s\n' "comment = 'vector data type'" "default_version = '0.7.4'" "module_pathname = '\$libdir/vector'" \
        'relocatable = true' >"$server/vector.control"
    touch "$server/vector--0.7.4.sql" "$case_root/usr/lib/postgresql/$(case_major)/lib/vector.so"
}
check_pgvector_old() { system_cluster | diff "$case_dir/system-cluster" -; }
system_cluster() {
    in_case runuser -u postgres -- psql --port 5432 --no-align --tuples-only \
        -c "SELECT pg_postmaster_start_time(), (SELECT string_agg(datname, ' ' ORDER BY oid) FROM pg_database),
            current_setting('shared_preload_libraries')"
}

# On trixie, 15 is what an upgrade from bookworm leaves: apt knows it no more.
prepare_majors() {
    local list=$case_root/etc/apt/sources.list
    cp "$list" "$list.trixie"
    sed 's/trixie/bookworm/g' "$list.trixie" >>"$list"
    case_apt postgresql-15 postgresql-17 postgresql-server-dev-17
    mv "$list.trixie" "$list"
    in_case apt-get update >>"$case_log-prepare.log" 2>&1
}

prepare_no_rust() { umount "$case_root/opt/rust"; }

# make demo is killed with all it started, at each of its stages, when its output or setup's log has one of these lines: at the
# next run it goes on.
prepare_interrupted() {
    local stage log=$case_log-interrupted.log setup_log=$case_root$case_checkout/.scratch/setup.log
    for stage in 'apt-get install .*postgresql' 'Unpacking postgresql-[0-9]' 'Setting up postgresql-[0-9]' \
        'fetching the models' 'building pgvector|install postgresql-[0-9]+-pgvector' 'building kb' 'making a cluster'; do
        printf '== killed at: %s\n' "$stage" >>"$log"
        rm -f "$setup_log"
        as_case_user make demo >"$log.now" 2>&1 &
        make=$!
        while kill -0 "$make" 2>/dev/null && ! grep -qsE "$stage" "$log.now" "$setup_log"; do sleep 0.1; done
        # In this namespace there is nothing but the case: pid 1, which is this script, is spared.
        kill -9 -1 2>/dev/null || true
        wait "$make" 2>/dev/null || true
        cat "$log.now" >>"$log"
    done
    rm -f "$log.now"
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

case_apt() {
    in_case env DEBIAN_FRONTEND=noninteractive sh -c 'apt-get update && apt-get install -y --no-install-recommends "$@"' \
        sh "$@" >>"$case_log-prepare.log" 2>&1 || die "the case's packages cannot be installed: $case_log-prepare.log"
}

# site LABEL: where apt gets Debian's packages of this label here.
site() {
    # shellcheck disable=SC2016
    apt-get indextargets --format '$(SITE) $(ORIGIN) $(LABEL)' 'Created-By: Packages' |
        sed -n "s/ Debian $1\$//p" | sort -u | head -n 1
}

# make_debian SUITE: the bare folder, once: moved into place when it is whole.
make_debian() {
    local debian=$bare/debian/$1 mirror security
    [ ! -d "$debian" ] || return 0
    mirror=$(site Debian)
    security=$(site Debian-Security)
    [ -n "$mirror" ] || die "apt here has no Debian mirror to take bare Debians from"
    say "debootstrap $1"
    rm -rf "$debian.new"
    mkdir -p "$debian.new"
    # Its mounts end with it, also when it is killed.
    unshare --mount debootstrap --variant=minbase --include=make "$1" "$debian.new" "$mirror" >"$bare/logs/debootstrap-$1.log" 2>&1 ||
        { tail -n 5 "$bare/logs/debootstrap-$1.log" >&2; die "debootstrap $1 failed"; }
    {
        printf 'deb %s %s main\n' "$mirror" "$1" "$mirror" "$1-updates"
        [ -z "$security" ] || printf 'deb %s %s-security main\n' "$security" "$1"
    } >"$debian.new/etc/apt/sources.list"
    # As images for containers come: without apt's lists.
    rm -rf "$debian.new"/var/lib/apt/lists/*
    # Nor does a package start its server there: the two Debians share the ports of this machine.
    printf '#!/bin/sh\nexit 101\n' >"$debian.new/usr/sbin/policy-rc.d"
    chmod +x "$debian.new/usr/sbin/policy-rc.d"
    # This machine's way to the network.
    cp /etc/hosts /etc/resolv.conf "$debian.new/etc/"
    cp -a /usr/local/share/ca-certificates "$debian.new/usr/local/share/" 2>/dev/null || true
    cp /etc/pip.conf "$debian.new/etc/" 2>/dev/null || true
    cp /etc/apt/apt.conf.d/*proxy* "$debian.new/etc/apt/apt.conf.d/" 2>/dev/null || true
    mv "$debian.new" "$debian"
}

# Mounts the case's Debian over the bare one, with the checkout in it. In the case's own namespace.
mount_case() {
    case_root=$case_dir/root
    mkdir -p "$case_dir/upper" "$case_dir/work" "$case_root"
    mount -t overlay overlay -o "lowerdir=$bare/debian/$suite,upperdir=$case_dir/upper,workdir=$case_dir/work" "$case_root"
    mount -t proc proc "$case_root/proc"
    mount --rbind /dev "$case_root/dev"
    mount -t tmpfs tmpfs "$case_root/dev/shm"
    if [ "$case_user" != root ]; then in_case useradd --create-home --shell /bin/bash "$case_user"; fi
    # in_case has no /opt/rust yet, nor does useradd need it.
    mkdir -p "$case_root/opt/rust" "$bare/cargo-$suite" "$bare/target-$suite" "$bare/apt-$suite/partial" "$case_root/opt/cargo"
    mount --bind "$(rustc --print sysroot)" "$case_root/opt/rust"
    mount -o remount,bind,ro "$case_root/opt/rust"
    mount --bind "$bare/cargo-$suite" "$case_root/opt/cargo"
    mount --bind "$bare/apt-$suite" "$case_root/var/cache/apt/archives"
    mkdir -p "$case_root$case_checkout/target"
    # What git does not ignore; of that, deleted files are missed.
    (cd "$root" && git ls-files -z --cached --others --exclude-standard |
        tar -c --null --ignore-failed-read --files-from - 2>/dev/null) | tar -x -C "$case_root$case_checkout"
    mount --bind "$bare/target-$suite" "$case_root$case_checkout/target"
    chown -R "$(in_case id -u "$case_user")" "$bare/cargo-$suite" "$bare/target-$suite" "$case_root$case_checkout"
}

# A row's cell for make demo: the demo answers three questions, one more in three ways, and cites passages in a context.
run_demo() {
    local began=$SECONDS answered
    if ! as_case_user timeout 5400 make demo >"$case_log-demo.log" 2>&1; then
        printf 'failed after %s s: %s\n' "$((SECONDS - began))" "$(grep -E 'error' "$case_log-demo.log" | tail -n 1 | cut -c 1-200)"
        return 1
    fi
    answered=$(grep -cE '^  1\. .*\(score ' "$case_log-demo.log" || true)
    [ "$answered" = 3 ] || { printf 'answered %s questions of 3\n' "$answered"; return 1; }
    # Under the heading a row of ranks, and in the context the first citation with where it is from (without the
    # characters where these would leave no room for more text).
    sed -n '/^One question three ways: /,$p' "$case_log-demo.log" |
        grep -E '^  +[0-9-]+ +[0-9-]+ +[0-9-]+  [^ ]+\.html: ' >/dev/null ||
        { printf 'did not answer one question three ways\n'; return 1; }
    sed -n '/^  ## \[1\] /,$p' "$case_log-demo.log" | grep -E '^  id: [^ ]+\.html(, characters: [0-9]+-[0-9]+)?$' >/dev/null ||
        { printf 'cited nothing in a context\n'; return 1; }
    # The rest of the manual is still being embedded.
    as_case_user make demo-stop >>"$case_log-demo.log" 2>&1 || { printf 'make demo-stop failed\n'; return 1; }
    printf 'ok, 3 answers; %s s\n' "$((SECONDS - began))"
}

run_test() {
    local began=$SECONDS status=ok
    as_case_user timeout 7200 make test >"$case_log-test.log" 2>&1 || status=failed
    printf '%s; pg_regress: %s; cargo test: %s; %s s\n' "$status" \
        "$(sed -nE 's/^[# ]*(All [0-9]+ tests passed|[0-9]+ of [0-9]+ tests failed).*/\1/p' "$case_log-test.log" | tail -n 1)" \
        "$(sed -nE 's/^test result: .* ([0-9]+) passed; ([0-9]+) failed; ([0-9]+) ignored.*/\1 \2 \3/p' "$case_log-test.log" |
            awk '{ p += $1; f += $2; i += $3 } END { printf "%d passed, %d failed, %d ignored", p, f, i }')" \
        "$((SECONDS - began))"
    [ "$status" = ok ]
}

is_wanted() { [[ ,$COMMANDS, == *,$1,* && ,$case_commands, == *,$1,* ]]; }

if_any() { if declare -F "$1" >/dev/null; then "$1"; fi; }

# One case on one Debian, in namespaces of its own.
run_case() {
    local failed=0 demo='not run' tested='not run'
    case_name=$1 suite=$2 case_commands=$3
    case_log=$bare/logs/$case_name-$suite case_dir=$bare/case-$suite
    rm -f "$case_log"-*.log
    settings "$case_name"
    mount_case
    if_any "prepare_${case_name//-/_}"
    if [ -n "$case_expects" ]; then
        if demo=$(run_demo) || ! grep -qE "$case_expects" "$case_log-demo.log"; then failed=1; fi
        demo="stops, as it should: $(grep 'kb: error' "$case_log-demo.log" | tail -n 1)"
    else
        if is_wanted demo; then demo=$(run_demo) || failed=1; fi
        if is_wanted test; then tested=$(run_test) || failed=1; fi
    fi
    if_any "check_${case_name//-/_}" >>"$case_log-check.log" 2>&1 || { demo="$demo; check failed" failed=1; }
    say "$case_name on $suite: demo: $demo; test: $tested"
    printf '| %s | %s | %s | %s | %s |\n' "$case_name" "$suite" "$(date -u +%F)" "${demo//|/\\|}" "${tested//|/\\|}" \
        >"$bare/results/$case_name-$suite"
    return "$failed"
}

# Puts the result of a case in place of its row in bench/bare.md. The other Debian's cases do, too.
write_result() {
    local row=$bare/results/$1-$2 results=$root/bench/bare.md
    [ -f "$row" ] || return 0
    flock 9
    sed -i "/^| $1 | $2 |/ { r $row
        d }" "$results"
    grep -qF "| $1 | $2 |" "$results" || cat "$row" >>"$results"
} 9>>"$bare/results.lock"

if [ -n "${KB_BARE_INSIDE:-}" ]; then
    # A case kills every process that it sees.
    [ $$ = 1 ] || die "KB_BARE_INSIDE is set outside of a case's namespaces"
    run_case "$@"
    exit
fi

mkdir -p "$bare/logs" "$bare/results"
wanted=("$@")
for name in "${wanted[@]}"; do
    grep -q "^$name " <<<"$CASES" || die "test-bare knows no case $name: $(cut -d' ' -f1 <<<"$CASES" | tr '\n' ' ')"
done

# run_suite SUITE: its cases, one after the other; fails naming those that failed in a file.
run_suite() {
    local name suite commands when
    while read -r name suite commands when <&3; do
        [ "$suite" = "$1" ] || continue
        case "$when ${#wanted[@]}" in
            'always 0') ;;
            *) [[ " ${wanted[*]} " == *" $name "* ]] || continue ;;
        esac
        make_debian "$suite"
        rm -rf "$bare/case-$suite"
        say "case $name on $suite"
        # The case's processes and mounts end with it.
        KB_BARE_INSIDE=1 COMMANDS=$COMMANDS unshare --mount --pid --ipc --uts --fork --kill-child --mount-proc \
            "$root/tools/test-bare.sh" "$name" "$suite" "$commands" || printf '%s on %s; ' "$name" "$suite" >>"$bare/failed"
        rm -rf "$bare/case-$suite"
        write_result "$name" "$suite"
    done 3<<<"$CASES"
}

: >"$bare/failed"
# What runs in the background is not sent Ctrl-C, and unshare ignores SIGTERM: with it dies all that is in the case.
trap 'kill -KILL 0' INT TERM
suites=()
for suite in bookworm trixie; do
    [ "${SUITE:-$suite}" = "$suite" ] || continue
    run_suite "$suite" &
    suites+=("$!")
done
for pid in "${suites[@]}"; do
    wait "$pid" || printf 'the cases of one Debian did not finish; ' >>"$bare/failed"
done
[ ! -s "$bare/failed" ] || die "failed: $(cat "$bare/failed")the logs are in $bare/logs"
say "test-bare: every case passed in $((SECONDS / 60)) minutes; results are in bench/bare.md"
