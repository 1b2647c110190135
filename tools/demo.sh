#!/usr/bin/env bash
# The demo: a scratch cluster that stays, PostgreSQL's manual and a folder of documents in it, some questions.
# tools/demo.sh [stop]
set -euo pipefail
# shellcheck source=tools/env.sh
. "$(dirname "$0")/env.sh"
# shellcheck source=tools/cluster.sh
. "$(dirname "$0")/cluster.sh"
need_setup

dir=$KB_SCRATCH/demo
if [ "${1:-}" = stop ]; then
    cluster_stop "$dir"
    say "the demo's cluster is stopped; make demo starts it again"
    exit
fi

sql() { cluster_psql "$dir" --no-align --tuples-only "$@"; }
library=$("$PG_CONFIG" --pkglibdir)/kb.so
schema=$("$PG_CONFIG" --sharedir)/extension/kb.control

# A cluster of another version, or with an older library loaded, will not do.
if [ "$(as_server cat "$dir/data/PG_VERSION" 2>/dev/null)" != "$PG_MAJOR" ]; then
    if [ -d "$dir/data" ]; then cluster_stop "$dir"; fi
    rm -rf "$dir"
    say "making a cluster in $dir"
    cluster_init "$dir"
elif [ "$library" -nt "$dir/data/postmaster.pid" ]; then
    cluster_stop "$dir"
fi
if ! cluster_runs "$dir"; then
    say "starting the cluster"
    cluster_start "$dir" "shared_preload_libraries = 'kb'" "kb.source_dirs = '$KB_SCRATCH/documents'"
fi

# The database remembers which schema it was made with; a changed one is installed again.
made_with=$(cat "$schema" "${schema%.control}"--*.sql | cksum | cut -d' ' -f1)
if [ "$(sql -d postgres -c "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = 'demo'")" \
    != "$made_with" ]; then
    sql -d postgres -c 'SET client_min_messages = warning' -c 'DROP DATABASE IF EXISTS demo WITH (FORCE)' -c 'CREATE DATABASE demo' \
        -c "COMMENT ON DATABASE demo IS '$made_with'"
fi

# In the place of a chat model: the stub of the tests, which ends with its input, and so with this script however that ends.
variables=(--set "manual=$KB_SCRATCH/manual")
coproc stub { exec "$CARGO_TARGET_DIR/debug/stub-provider" 2>"$KB_SCRATCH/demo-stub.log"; }
listening=
{ read -r -t 20 listening <&"${stub[0]-}"; } 2>/dev/null || true
case $listening in
    "listening on "*) variables+=(--set "stub_url=http://${listening#listening on }/chat_openai/v1") ;;
    *) say "the stub of a chat model does not start ($KB_SCRATCH/demo-stub.log): there will be no answer with citations" ;;
esac

# The script runs in the background while this one watches its progress from another connection.
psql_pid=
trap 'if [ -n "$psql_pid" ]; then kill "$psql_pid" 2>/dev/null || true; fi' EXIT
cluster_psql "$dir" -d demo "${variables[@]}" -f "$root/demo/demo.sql" &
psql_pid=$!
seen=
while kill -0 "$psql_pid" 2>/dev/null; do
    # Counts, a tab, and the estimate, which alone is no news.
    now=$(sql -d demo -c "SELECT format(E'%s: %s of %s documents, %s of %s chunks embedded\t', kb_id, ready, documents, vectors, chunks)
        || coalesce('about ' || eta || ' left', '') FROM kb.status WHERE pending > 0 ORDER BY kb_id = 'manual' LIMIT 1" \
        2>/dev/null || true)
    if [ "${now%%$'\t'*}" != "$seen" ]; then
        seen=${now%%$'\t'*}
        left=${now#*$'\t'}
        if [ -n "$seen" ]; then say "$seen${left:+, $left}"; fi
    fi
    sleep 1
done
wait "$psql_pid" || die "the demo failed; its server's log is $dir/log"
psql_pid=

# The same from a command line, in colours on a terminal.
connection=(-h "$dir" -p "$PORT" -U postgres -d demo)
say "kb status"
"$PG_BIN/kb" "${connection[@]}" status
question='how do I undo a transaction?'
say "kb query manual -q '$question' --top-k 1"
"$PG_BIN/kb" "${connection[@]}" query manual -q "$question" --top-k 1

cat <<END

Ask it yourself:  $PG_BIN/psql ${connection[*]}
                  SELECT rank, score, content FROM kb.query('manual', '$question', 3);
or                $PG_BIN/kb ${connection[*]} query manual -q '$question'
Stop it:          make demo-stop
END
