# Scratch clusters: each in a directory of its own (data, log, socket), reachable by its Unix socket only,
# so that no port can clash. Sourced after env.sh.
# shellcheck shell=bash

PORT=54329
# The caller's variables are about another server.
unset PGHOST PGHOSTADDR PGPORT PGUSER PGDATABASE PGPASSWORD PGPASSFILE PGSERVICE PGSERVICEFILE PGOPTIONS PGDATA

make_server_dir() {
    if is_root; then install -d -o postgres -g postgres -m 700 "$1"; else install -d -m 700 "$1"; fi
}

# cluster_init DIR: a new cluster in DIR/data, superuser postgres; there only once it is whole.
cluster_init() {
    make_server_dir "$1"
    rm -rf "$1/data.new"
    as_server "$PG_BIN/initdb" --pgdata "$1/data.new" --username postgres --auth trust --encoding UTF8 \
        --locale C.UTF-8 --no-sync >/dev/null
    as_server tee -a "$1/data.new/postgresql.conf" <<<"include 'scratch.conf'" >/dev/null
    as_server mv "$1/data.new" "$1/data"
}

# cluster_start DIR [SETTING...]: starts it and waits until it answers.
cluster_start() {
    local dir=$1
    shift
    as_server tee "$dir/data/scratch.conf" >/dev/null <<CONF
listen_addresses = ''
port = $PORT
unix_socket_directories = '$dir'
kb.model_dir = '$KB_MODEL_DIR'
$(printf '%s\n' "$@")
CONF
    as_server "$PG_BIN/pg_ctl" start --pgdata "$dir/data" --log "$dir/log" --timeout 60 --wait >/dev/null ||
        { as_server tail -n 20 "$dir/log" >&2; die "the scratch cluster in $dir does not start"; }
}

cluster_runs() { as_server "$PG_BIN/pg_ctl" status --pgdata "$1/data" >/dev/null 2>&1; }

cluster_stop() {
    cluster_runs "$1" || return 0
    as_server "$PG_BIN/pg_ctl" stop --pgdata "$1/data" --mode fast --timeout 30 >/dev/null 2>&1 ||
        as_server "$PG_BIN/pg_ctl" stop --pgdata "$1/data" --mode immediate --timeout 30 >/dev/null
}

# clusters_stop DIR: stops all clusters in DIR at once.
clusters_stop() {
    local pidfile
    while IFS= read -r pidfile; do
        as_server "$PG_BIN/pg_ctl" stop --pgdata "${pidfile%/*}" --mode immediate --timeout 30 >/dev/null 2>&1 || true
    done < <(find "$1" -name postmaster.pid 2>/dev/null)
}

cluster_psql() {
    local dir=$1
    shift
    "$PG_BIN/psql" --no-psqlrc --quiet --set ON_ERROR_STOP=1 --host "$dir" --port "$PORT" --username postgres "$@"
}

# server_stop PID: ends another server that the script has started. '': there is none.
server_stop() {
    [ -n "$1" ] || return 0
    kill "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}

# free_port PYTHON: a port of loopback that nobody uses.
free_port() { "$1" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
