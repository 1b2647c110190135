#!/usr/bin/env bash
# A bucket of a server that nobody here wrote: moto, from the Python package index, serves S3 on loopback, its own
# client fills and changes a bucket, and the documents of a source must follow. Expects kb installed (make test-real
# sees to it). Nothing is left running.
set -euo pipefail
# shellcheck source=tools/env.sh
. "$(dirname "$0")/env.sh"
# shellcheck source=tools/cluster.sh
. "$(dirname "$0")/cluster.sh"
need_setup

MOTO=5.2.5
work=$KB_SCRATCH/moto
server=
cleanup() {
    server_stop "$server"
    cluster_stop "$work/cluster" || true
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

cluster_stop "$work/cluster"
rm -rf "$work"
mkdir "$work"
if is_root; then chmod 711 "$work"; fi

python=$(find_python) || die "python3 with pip is missing: apt-get install python3-pip"
venv=$KB_SCRATCH/moto-$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-$MOTO
if [ ! -f "$venv/.complete" ]; then
    say "fetching moto $MOTO"
    rm -rf "$venv"
    "$python" -m venv --without-pip "$venv"
    timeout --foreground --kill-after 30 900 "$python" -m pip --python "$venv/bin/python" install --quiet \
        --disable-pip-version-check --root-user-action=ignore "moto[s3,server]==$MOTO" </dev/null
    touch "$venv/.complete"
fi

port=$(free_port "$venv/bin/python")
url=http://127.0.0.1:$port
timeout --kill-after 10 600 "$venv/bin/moto_server" -H 127.0.0.1 -p "$port" >"$work/server.log" 2>&1 </dev/null &
server=$!

# bucket put KEY TEXT... | delete KEY...: by Amazon's own client.
bucket() {
    env AWS_ACCESS_KEY_ID=moto AWS_SECRET_ACCESS_KEY=secret AWS_DEFAULT_REGION=us-east-1 NO_PROXY=127.0.0.1 no_proxy=127.0.0.1 \
        "$venv/bin/python" - "$url" "$@" <<'PYTHON'
import sys, boto3
client = boto3.client("s3", endpoint_url=sys.argv[1])
what, rest = sys.argv[2], sys.argv[3:]
if what == "make":
    client.create_bucket(Bucket="documents")
elif what == "put":
    for key, text in zip(rest[::2], rest[1::2]):
        client.put_object(Bucket="documents", Key=key, Body=text.encode())
elif what == "many":
    for n in range(int(rest[0])):
        client.put_object(Bucket="documents", Key=f"many/{n}.txt", Body=f"Text {n}".encode())
else:
    for key in rest:
        client.delete_object(Bucket="documents", Key=key)
PYTHON
}
began=$SECONDS
until bucket make 2>/dev/null; do
    if ! kill -0 "$server" 2>/dev/null || [ $((SECONDS - began)) -gt 120 ]; then
        tail -n 40 "$work/server.log" >&2
        die "moto does not answer"
    fi
    sleep 1
done
say "moto answers after $((SECONDS - began)) s"

cluster_init "$work/cluster"
cluster_start "$work/cluster" "shared_preload_libraries = 'kb'" "fsync = off" "kb.allowed_hosts = '127.0.0.1'"
sql() {
    timeout --foreground --kill-after 10 300 "$PG_BIN/psql" --no-psqlrc --quiet --no-align --tuples-only --set ON_ERROR_STOP=1 \
        --host "$work/cluster" --port "$PORT" --username postgres -c "SET client_min_messages = warning" "$@"
}

# is WHAT EXPECTED SQL: the answer is the expected one.
is() {
    local found
    found=$(sql -c "$3")
    [ "$found" = "$2" ] || die "$1: expected $2, found $found"
    say "$1: $2"
}
run() { sql -c "SELECT kb.ingest('k')" -c "SELECT kb.wait('k', 200)" >/dev/null; }
documents="SELECT string_agg(external_id || '=' || content, ', ' ORDER BY external_id COLLATE \"C\") FROM kb.documents
           WHERE status = 'ready' AND external_id NOT LIKE '%many/%'"
counts="SELECT concat_ws(' ', added, updated, skipped, deleted, failed) FROM kb.runs ORDER BY run_no DESC LIMIT 1"

bucket put 'a.md' 'One' 'docs/ä b+c.txt' 'Two' 'docs//d.txt' 'Three' '日本/🦀.md' 'Four'
# More than a page of a listing.
bucket many 1500
sql -c "CREATE EXTENSION kb CASCADE" -c "SELECT kb.create_knowledge_base('k', 'hash')" -c "SELECT kb.set_secret('moto', 'moto:secret')" \
    -c "SELECT kb.create_source('k', 's', 's3', '{\"bucket\": \"documents\", \"endpoint\": \"$url\", \"region\": \"us-east-1\", \"secret\": \"kb:moto\"}')" >/dev/null
run
is "documents of a bucket" "s/a.md=One, s/docs//d.txt=Three, s/docs/ä b+c.txt=Two, s/日本/🦀.md=Four" "$documents"
is "all pages of the listing" 1504 "SELECT count(*) FROM kb.documents WHERE status = 'ready'"
run
is "a second run reads nothing (added, updated, skipped, deleted, failed)" "0 0 1504 0 0" "$counts"
bucket put 'a.md' 'Another' 'new.md' 'New'
bucket delete 'docs//d.txt'
run
is "what has changed" "s/a.md=Another, s/docs/ä b+c.txt=Two, s/new.md=New, s/日本/🦀.md=Four" "$documents"
is "is counted" "1 1 1502 1 0" "$counts"
say "a bucket of moto is followed"
