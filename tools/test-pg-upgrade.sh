#!/usr/bin/env bash
# pg_upgrade of a filled database from the server of PG_CONFIG to a newer one, which has pgvector: all rows are the same
# afterwards, and documents, attached tables, partitions, bound roles and quotas work. tools/test-pg-upgrade.sh NEW_PG_CONFIG
set -euo pipefail
# shellcheck source=tools/env.sh
. "$(dirname "$0")/env.sh"
# shellcheck source=tools/cluster.sh
. "$root/tools/cluster.sh"
need_setup

new=${1:?the pg_config of the newer server}
major=$(server_major "$new")
known_major "${major:-none}" || die "$new is of PostgreSQL ${major:-?}; kb is for ${KB_MAJORS[*]}"
new_bin=$("$new" --bindir)
dir=$KB_SCRATCH/pg-upgrade
old_data=$dir/old/data new_data=$dir/new

cleanup() {
    clusters_stop "$dir"
    rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP
clusters_stop "$dir" 2>/dev/null || true
rm -rf "$dir"

CARGO_TARGET_DIR=$root/.scratch/target-pg$major PG_CONFIG=$new "$root/tools/install.sh" dev

sql() { cluster_psql "$dir/old" --no-align --tuples-only "$@"; }
start_new() {
    as_server tee -a "$new_data/postgresql.conf" >/dev/null <<CONF
listen_addresses = ''
port = $PORT
unix_socket_directories = '$dir/old'
shared_preload_libraries = 'kb'
CONF
    as_server "$new_bin/pg_ctl" start --pgdata "$new_data" --log "$dir/old/new.log" --timeout 60 --wait >/dev/null
}

# Every table of kb with the number and a digest of its rows.
rows() {
    local table
    while IFS= read -r table; do
        sql app --command "SELECT '$table', count(*), md5(string_agg(t::text, ',' ORDER BY t::text)) FROM $table t"
    done < <(sql app --command "SELECT oid::regclass FROM pg_class WHERE relnamespace = 'kb'::regnamespace
        AND relkind = 'r' ORDER BY relname COLLATE \"C\"")
}

# expect WHAT SQL: the last line that psql prints is WHAT.
expect() {
    local found
    found=$(sql app <<<"$2" | tail -n 1)
    [ "$found" = "$1" ] || die "$2: found $found instead of $1"
}

make_server_dir "$dir"
cluster_init "$dir/old"
cluster_start "$dir/old" "shared_preload_libraries = 'kb'"
sql postgres --command "CREATE DATABASE app" >/dev/null
sql app >/dev/null <<'SQL'
SET client_min_messages = warning;
CREATE EXTENSION kb CASCADE;
CREATE ROLE a LOGIN IN ROLE kb_writer;
CREATE ROLE b LOGIN IN ROLE kb_reader;
SELECT kb.bind_role('a', 'a'), kb.bind_role('b', 'b'), kb.set_quota('a', documents => 2);
SET kb.tenant = 'a';
SELECT kb.create_knowledge_base('k', 'hash'), kb.put_document('k', 'd', 'The lease ends in May.');
SELECT kb.share('k', 'b');
SELECT kb.wait('k', 60);
RESET kb.tenant;
CREATE TABLE p (id int, year int, body text, PRIMARY KEY (year, id)) PARTITION BY LIST (year);
CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1);
CREATE TABLE p2 PARTITION OF p FOR VALUES IN (2);
CREATE TABLE t (id int PRIMARY KEY, body text);
INSERT INTO p SELECT i, 1 + i % 2, 'Row of p ' || i FROM generate_series(1, 20) i;
INSERT INTO t VALUES (1, 'Row of t');
SELECT kb.create_knowledge_base('rows', 'hash');
SELECT kb.attach_table('rows', 'p', 'body'), kb.attach_table('rows', 't', 'body', replicated => true);
SELECT kb.wait('rows', 60);
SQL
before=$(rows)
# Some builds of PostgreSQL stamp columns with an option that no other server reads.
for database in postgres template1 app; do
    PGOPTIONS='-c allow_system_table_mods=on' sql "$database" --command \
        "UPDATE pg_attribute SET attoptions = NULL WHERE attoptions::text ~ '^\{pg_attver=[0-9]+\}$'" >/dev/null
done
cluster_stop "$dir/old"

say "pg_upgrade from PostgreSQL $PG_MAJOR to $major"
sums=()
[ "$major" -lt 18 ] || sums=(--no-data-checksums)
as_server "$new_bin/initdb" --pgdata "$new_data" --username postgres --auth trust --encoding UTF8 --locale C.UTF-8 \
    --no-sync "${sums[@]}" >/dev/null
as_server env --chdir="$dir/old" "$new_bin/pg_upgrade" --old-bindir "$PG_BIN" --new-bindir "$new_bin" --old-datadir "$old_data" \
    --new-datadir "$new_data" --username postgres --socketdir "$dir/old" >"$root/.scratch/pg-upgrade.log" 2>&1 ||
    { tail -n 20 "$root/.scratch/pg-upgrade.log" >&2; die "pg_upgrade failed"; }
start_new
after=$(rows)
[ "$before" = "$after" ] || die "rows differ: $(diff <(echo "$before") <(echo "$after"))"
say "$(wc -l <<<"$after") tables of kb have the same rows; now they are used"

expect d "SET kb.tenant = 'a'; SELECT external_id FROM kb.query('k', 'lease', 1)"
expect '' "SET kb.tenant = 'a'; SELECT kb.put_document('k', 'd2', 'The lease of Bergen ends in June.'); SELECT kb.wait('k', 60)"
expect 'b d2' "SET ROLE b; SELECT concat(kb.current_tenant(), ' ', external_id) FROM kb.query('k', 'Bergen', 1)"
expect 2 "SET kb.tenant = 'a'; SELECT used FROM kb.quota_status WHERE what = 'documents'"
sql app >/dev/null <<'SQL'
UPDATE p1 SET body = 'Edited after the upgrade' WHERE id = 2;
INSERT INTO t VALUES (2, 'New after the upgrade');
CREATE TABLE p3 PARTITION OF p FOR VALUES IN (3);
INSERT INTO p3 VALUES (1, 3, 'In a new partition');
SELECT kb.wait('rows', 60);
SQL
for content in 'Edited after the upgrade' 'New after the upgrade' 'In a new partition'; do
    expect "$content" "SELECT content FROM kb.query('rows', '$content', 1)"
done
expect 13 "BEGIN; TRUNCATE p2; SELECT count(*) FROM kb.query('rows', 'row', 50, min_score => 0)"
expect '4 A, 16 O' "SELECT string_agg(concat(n, ' ', tgenabled), ', ' ORDER BY tgenabled) FROM (
    SELECT tgenabled, count(*) AS n FROM pg_trigger WHERE tgname LIKE 'kb\_%' GROUP BY 1) t"
expect 0 "SELECT count(*) FROM kb.failures"
expect 0 "DROP EXTENSION kb; SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal"
say "ok: PostgreSQL $PG_MAJOR to $major"
