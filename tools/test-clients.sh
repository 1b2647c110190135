#!/usr/bin/env bash
# The Python client, its adapters for LangChain and LlamaIndex, and the examples: lint and types, the frameworks' own suites
# and ours, against a scratch cluster. Expects kb installed, and what tools/setup.sh clients installs (make test-clients sees to
# both). The first run fetches 150 MB of Python packages; nothing is left running. WORDS chooses tests of pytest, as -k does.
# tools/test-clients.sh [WORDS]
set -euo pipefail
# shellcheck source=tools/env.sh
. "$(dirname "$0")/env.sh"
# shellcheck source=tools/cluster.sh
. "$(dirname "$0")/cluster.sh"
need_setup

clients=$root/clients
work=$KB_SCRATCH/clients
bouncer=
cleanup() {
    [ -z "$bouncer" ] || kill "$bouncer" 2>/dev/null || true
    cluster_stop "$work/cluster" || true
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

cluster_stop "$work/cluster"
rm -rf "$work"
mkdir "$work"
if is_root; then chmod 711 "$work"; fi
for program in node npm; do have "$program" || die "$program is missing: tools/setup.sh clients"; done

# The packages, by their hashes, in an environment that the next run finds again. uv, which is one of them, fetches the others
# ten times as fast as pip does; where it cannot, because only pip knows where the index is, pip does. pip is the caller's, as
# Debian's venv brings none.
python=$(find_python) || die "python3 with pip is missing: tools/setup.sh clients"
lock=$clients/python/requirements-test.txt
key=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-$(cksum <"$lock" | cut -d' ' -f1)
venv=$KB_SCRATCH/clients-python-$key
pip_install() {
    timeout --foreground --kill-after 30 900 "$python" -m pip --python "$venv/bin/python" install --quiet --no-deps \
        --disable-pip-version-check --root-user-action=ignore --no-compile --no-cache-dir "$@" </dev/null
}
if [ ! -f "$venv/.complete" ]; then
    say "fetching the Python packages of requirements-test.txt"
    rm -rf "$venv"
    "$python" -m venv --without-pip "$venv"
    sed -n '/^uv==/,/[^\\]$/p' "$lock" >"$work/uv.txt"
    pip_install --require-hashes --only-binary=:all: --requirement "$work/uv.txt"
    timeout --foreground --kill-after 30 900 "$venv/bin/uv" pip install --quiet --no-cache --no-deps --require-hashes \
        --only-binary :all: --python "$venv/bin/python" --requirement "$lock" </dev/null ||
        pip_install --require-hashes --only-binary=:all: --requirement "$lock"
    touch "$venv/.complete"
fi
# As a user gets it: built, not from the checkout.
pip_install --no-build-isolation --force-reinstall "$clients/python"

say "ruff and mypy --strict"
(
    cd "$clients/python"
    "$venv/bin/ruff" check --quiet --no-cache .
    "$venv/bin/ruff" format --check --quiet --no-cache .
    "$venv/bin/mypy" --cache-dir "$venv/.mypy" --no-error-summary
)

cluster_init "$work/cluster"
cluster_start "$work/cluster" "shared_preload_libraries = 'kb'" "fsync = off" "max_worker_processes = 32"
cluster_psql "$work/cluster" --dbname postgres -c "CREATE DATABASE app"
cluster_psql "$work/cluster" --dbname app -c "SET client_min_messages = warning" -c "CREATE EXTENSION kb CASCADE"
export KB_TEST_CONNINFO="host=$work/cluster port=$PORT user=postgres dbname=app"

# A proxy that assigns connections for one transaction at a time, with one connection for all.
PATH=$PATH:/usr/sbin
if have pgbouncer; then
    make_server_dir "$work/bouncer"
    as_server tee "$work/bouncer/users" >/dev/null <<<'"kb_client_writer" ""'
    as_server tee "$work/bouncer/ini" >/dev/null <<CONF
[databases]
app = host=$work/cluster port=$PORT
[pgbouncer]
listen_addr =
listen_port = $PORT
unix_socket_dir = $work/bouncer
auth_type = trust
auth_file = $work/bouncer/users
pool_mode = transaction
default_pool_size = 1
logfile = $work/bouncer/log
pidfile = $work/bouncer/pid
CONF
    as_server "$(type -P pgbouncer)" -q -d "$work/bouncer/ini"
    bouncer=$(as_server cat "$work/bouncer/pid")
    export KB_TEST_PGBOUNCER="host=$work/bouncer port=$PORT user=kb_client_writer dbname=app"
else
    say "SKIPPED: the tests behind PgBouncer, which is not installed (apt-get install pgbouncer)"
fi

# count WHAT TESTS...: runs tests of pytest. Its last line has their number.
count() {
    local what=$1
    shift
    say "$what"
    "$venv/bin/python" -m pytest --quiet -p pytest_asyncio.plugin -p no:cacheprovider "$@"
}
# Compiled once, and not into the checkout. Plugins that other packages bring would take longer to load than most tests run.
export PYTHONPYCACHEPREFIX=$venv/.pycache PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
cd "$clients/python"
if [ $# -gt 0 ]; then
    count "tests with: $*" -k "$*"
    exit
fi
count "the standard suites of langchain-tests" tests/test_langchain_suites.py
count "the cases of LlamaIndex's vector stores" tests/test_llama_index.py
count "the client, the adapters, the examples and the pages" --ignore tests/test_langchain_suites.py --ignore tests/test_llama_index.py

say "the example for Node"
cp -r "$clients/examples/node" "$work/node"
cd "$work/node"
timeout --foreground --kill-after 30 300 npm ci --ignore-scripts --no-audit --no-fund --silent </dev/null
PGHOST=$work/cluster PGPORT=$PORT PGUSER=kb_client_writer PGDATABASE=app \
    timeout --foreground --kill-after 10 120 node --test
say "the clients pass"
