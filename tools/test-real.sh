#!/usr/bin/env bash
# kb against an embedding server that nobody here wrote: infinity, from the Python package index, serves the very
# weights of kb's own minilm on loopback, and its vectors by way of provider openai must be minilm's. Expects kb
# installed (make test-real sees to it), and x86-64. The first run fetches 3 GB; nothing is left running.
set -euo pipefail
# shellcheck source=tools/env.sh
. "$(dirname "$0")/env.sh"
# shellcheck source=tools/cluster.sh
. "$(dirname "$0")/cluster.sh"
need_setup

MODEL=all-MiniLM-L6-v2
TOLERANCE=1e-3
# The server and everything it needs, to the last version, so that no newer one breaks it. Only the CPU is used, but
# the index has torch for CUDA alone, which does not load without CUDA's libraries. Left out is triton, which compiles
# for GPUs; infinity asks for a numpy below 2, but works with this one, which Python 3.13 has too.
PINS=(
    infinity-emb==0.0.76 torch==2.6.0 transformers==4.51.3 sentence-transformers==3.4.1 annotated-doc==0.0.7
    annotated-types==0.8.0 anyio==4.16.0 backoff==2.2.1 certifi==2026.10.18 charset_normalizer==3.5.2
    click==8.1.8 cloudpickle==3.1.2 distro==1.9.0 fastapi==0.165.0 filelock==4.2.11 fsspec==2026.9.0
    h11==0.16.0 hf-xet==1.8.0 hf_transfer==0.1.9 httptools==0.9.0 huggingface-hub==0.36.2 idna==3.20
    jinja2==3.1.6 joblib==1.6.0 markdown-it-py==4.3.0 markupsafe==3.0.4 mdurl==0.1.2 mpmath==1.3.0
    narwhals==2.28.0 networkx==3.6.1 numpy==2.2.6 nvidia-cublas-cu12==12.4.5.8
    nvidia-cuda-cupti-cu12==12.4.127 nvidia-cuda-nvrtc-cu12==12.4.127 nvidia-cuda-runtime-cu12==12.4.127
    nvidia-cudnn-cu12==9.1.0.70 nvidia-cufft-cu12==11.2.1.3 nvidia-curand-cu12==10.3.5.147
    nvidia-cusolver-cu12==11.6.1.9 nvidia-cusparse-cu12==12.3.1.170 nvidia-cusparselt-cu12==0.6.2
    nvidia-nccl-cu12==2.21.5 nvidia-nvjitlink-cu12==12.4.127 nvidia-nvtx-cu12==12.4.127
    opentelemetry-api==1.45.2 orjson==3.13.0 packaging==26.3 pillow==13.0.0 posthog==7.91.1
    prometheus-client==0.26.0 prometheus-fastapi-instrumentator==8.1.0 pydantic-core==2.50.4 pydantic==2.14.3
    pygments==2.21.0 python-dotenv==1.2.4 pyyaml==6.0.3 regex==2026.11.15 requests==2.34.2 rich==13.9.4
    safetensors==0.8.0 scikit-learn==1.9.1 scipy==1.17.1 shellingham==1.5.4 starlette==1.10.0 sympy==1.13.1
    threadpoolctl==3.8.0 tokenizers==0.21.4 tqdm==4.70.1 typer==0.12.5 typing-extensions==4.16.0
    typing-inspection==0.4.5 urllib3==2.8.0 uvicorn==0.32.1 uvloop==0.23.0 watchfiles==1.3.0 websockets==17.4
)

work=$KB_SCRATCH/real
server=
cleanup() {
    server_stop "$server"
    cluster_stop "$work/cluster" || true
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

[ "$(uname -m)" = x86_64 ] || die "test-real needs x86-64: its versions of torch and CUDA are pinned for that"
[ -f "$KB_MODEL_DIR/$MODEL/model.safetensors" ] || die "$KB_MODEL_DIR/$MODEL is missing: run make setup"
cluster_stop "$work/cluster"
rm -rf "$work"
mkdir "$work"
if is_root; then chmod 711 "$work"; fi

# The server, in an environment of its own that the next run finds again; pip is the caller's, as Debian's venv
# brings none.
python=$(find_python) || die "python3 with pip is missing: apt-get install python3-pip"
key=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
key=$key-$(printf '%s\n' "${PINS[@]}" | cksum | cut -d' ' -f1)
venv=$KB_SCRATCH/real-python-$key
if [ ! -f "$venv/.complete" ]; then
    say "fetching ${PINS[0]} and what it needs (3 GB, some minutes; 5 GB of disk)"
    rm -rf "$venv"
    "$python" -m venv --without-pip "$venv"
    timeout --foreground --kill-after 30 1800 "$python" -m pip --python "$venv/bin/python" install --quiet --no-deps \
        --disable-pip-version-check --root-user-action=ignore --no-compile --no-cache-dir --only-binary=:all: \
        "${PINS[@]}" </dev/null
    touch "$venv/.complete"
fi

# The model as sentence-transformers lays one out: kb's own files, and the list of layers, which kb does not need.
mkdir "$work/model"
ln -s "$KB_MODEL_DIR/$MODEL"/* "$work/model/"
if [ ! -e "$work/model/modules.json" ]; then
    cat >"$work/model/modules.json" <<'JSON'
[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
 {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
 {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}]
JSON
fi

port=$(free_port "$venv/bin/python")
url=http://127.0.0.1:$port
say "starting infinity at $url"
began=$SECONDS
env HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 INFINITY_ANONYMOUS_USAGE_STATS=0 DO_NOT_TRACK=1 HF_HOME="$work/home" \
    timeout --kill-after 10 900 "$venv/bin/infinity_emb" v2 --model-id "$work/model" \
    --served-model-name minilm --engine torch --device cpu --dtype float32 --no-bettertransformer --no-model-warmup \
    --no-compile --host 127.0.0.1 --port "$port" >"$work/server.log" 2>&1 </dev/null &
server=$!
until "$venv/bin/python" - "$url/health" 2>/dev/null <<'PYTHON'
import sys, urllib.request
urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sys.argv[1], timeout=5).read()
PYTHON
do
    if ! kill -0 "$server" 2>/dev/null || [ $((SECONDS - began)) -gt 180 ]; then
        tail -n 40 "$work/server.log" >&2
        die "infinity does not answer"
    fi
    sleep 1
done
say "infinity answers after $((SECONDS - began)) s"

cluster_init "$work/cluster"
cluster_start "$work/cluster" "shared_preload_libraries = 'kb'" "fsync = off"
timeout --foreground --kill-after 10 600 "$PG_BIN/psql" --no-psqlrc --quiet --no-align --tuples-only \
    --set ON_ERROR_STOP=1 --set "url=$url" --set "tolerance=$TOLERANCE" --host "$work/cluster" --port "$PORT" \
    --username postgres <<'SQL' ||
SET client_min_messages = warning;
SET statement_timeout = '5min';
CREATE EXTENSION kb CASCADE;
SELECT kb.create_embedder('real', 'openai', 'minilm', 384, :'url', config => '{"path": "/embeddings"}') \g /dev/null
SELECT kb.create_embedder('real_base64', 'openai', 'minilm', 384, :'url',
    config => '{"path": "/embeddings", "encoding_format": "base64"}') \g /dev/null

CREATE TABLE texts (n int GENERATED ALWAYS AS IDENTITY, text text NOT NULL);
INSERT INTO texts (text) VALUES
    ('a'), ('7'), ('?'), ('Hello, world!'), ('HELLO, WORLD!'), ('hello world'),
    ('The cat sat on the mat.'),
    ('How do I undo a transaction?'),
    ('"Quoted" (bracketed) [squared] {braced}; semi-colon: dash – long — dots … 100 % & more @ home #1'),
    (E'first line\nsecond line\r\nthird line\n\n\tan indented paragraph'),
    (E'   white   space\u00a0of \u2003 many\u200b kinds  '),
    ('Grüße aus Köln: der Straßenbau läuft, naïve café, Ångström, señor, İstanbul'),
    (E'cafe\u0301 and caf\u00e9'),
    ('Москва — столица России. Ελληνικά γράμματα'),
    ('東京は日本の首都です。中文句子。한국어 문장'),
    ('مرحبا بالعالم שלום עולם नमस्ते दुनिया สวัสดีชาวโลก'),
    ('😀 👩‍👩‍👧 🇩🇪 emoji and ∑∫√ ≤ ½ symbols'),
    ('fn main() { let v: Vec<f32> = xs.iter().map(|x| x * 2.0).collect(); println!("{v:?}"); }'),
    ('SELECT a.id, count(*) FROM a LEFT JOIN b ON a.id = b.a_id WHERE b.x IS NULL GROUP BY 1 HAVING count(*) > 3;'),
    ('https://example.org/path?query=1&b=%20#top user@example.org /usr/local/lib 127.0.0.1:8080'),
    ('{"key": [1, 2.5, -3e10, null, true], "nested": {"a\\b": "\"c\""}}'),
    ('pneumonoultramicroscopicsilicovolcanoconiosis antidisestablishmentarianism'),
    (repeat('x', 150)),
    ('[CLS] [SEP] [MASK] [UNK] ##ing'),
    ('Pi is 3.14159265358979; the year 2024-02-29T23:59:59Z; $1,234.56; 1/3; 10^-6'),
    (rtrim(repeat('The quick brown fox jumps over the lazy dog. ', 10))),
    (rtrim(repeat('word ', 200))),
    ((SELECT string_agg(short_desc, ' ' ORDER BY name) FROM (SELECT * FROM pg_settings WHERE name NOT LIKE 'kb.%'
        ORDER BY name LIMIT 15) AS s));

SELECT format('%s texts of %s to %s tokens', count(*), min(tokens), max(tokens))
FROM (SELECT kb.count_tokens(text, 'minilm') AS tokens FROM texts) AS counted;

-- Every coordinate of every text, as both make it.
CREATE TABLE differences AS
SELECT embedder, kind, t.n, c.i, abs(c.ours::float8 - c.theirs::float8) AS difference
FROM unnest('{real,real_base64}'::text[]) AS embedder, unnest('{document,query}'::text[]) AS kind,
     LATERAL (SELECT array_agg(text ORDER BY n) AS texts FROM texts) AS a,
     LATERAL kb.embed('minilm', a.texts, kind) WITH ORDINALITY AS ours (v, n)
     JOIN LATERAL kb.embed(embedder, a.texts, kind) WITH ORDINALITY AS theirs (v, n) USING (n)
     JOIN texts AS t ON t.n = ours.n,
     LATERAL unnest(ours.v::real[], theirs.v::real[]) WITH ORDINALITY AS c (ours, theirs, i);

SELECT format('%s as %s: %s coordinates, largest difference %s (text %s)', rpad(embedder, 11), rpad(kind, 8), count(*),
    to_char(max(difference), '9.99EEEE'), (array_agg(n ORDER BY difference DESC))[1])
FROM differences GROUP BY embedder, kind ORDER BY embedder, kind;
SELECT format('largest difference of all: %s', to_char(max(difference), '9.99EEEE')) FROM differences;

-- A knowledge base on the server: each document is found by its own text.
CREATE TABLE documents AS
SELECT name AS id, short_desc AS text
FROM (SELECT DISTINCT ON (lower(short_desc)) name, short_desc FROM pg_settings WHERE name NOT LIKE 'kb.%'
      ORDER BY lower(short_desc), name) AS settings
ORDER BY md5(name) LIMIT 50;
SELECT kb.create_knowledge_base('settings', embedder => 'real') \g /dev/null
SELECT kb.put_document('settings', id, text) FROM documents \g /dev/null
SELECT kb.wait('settings', 120) \g /dev/null
CREATE TABLE found AS
SELECT d.id, q.external_id, q.score
FROM documents AS d LEFT JOIN LATERAL kb.query('settings', d.text, 1) AS q ON true;
SELECT format('%s documents ready, %s failed; %s of %s found first by their own text, lowest score %s',
    s.ready, s.failed, count(*) FILTER (WHERE f.id = f.external_id), count(*), round(min(f.score)::numeric, 6))
FROM kb.status AS s, found AS f WHERE s.kb_id = 'settings' GROUP BY s.ready, s.failed;

SELECT set_config('test.tolerance', :'tolerance', false) \g /dev/null
DO $$
DECLARE
    tolerance CONSTANT float8 := current_setting('test.tolerance');
BEGIN
    ASSERT (SELECT count(*) FROM differences) = 2 * 2 * 384 * (SELECT count(*) FROM texts), 'a coordinate is missing';
    ASSERT (SELECT max(difference) <= tolerance FROM differences), format('a difference is larger than %s', tolerance);
    ASSERT (SELECT count(*) = 50 AND bool_and(id = external_id AND score > 0.999) IS TRUE FROM found),
        'a document is not found by its own text';
END $$;
SQL
{
    say "the server's last words:"
    tail -n 20 "$work/server.log"
    as_server tail -n 20 "$work/cluster/log"
    die "test-real failed"
} >&2
# Four of kb.embed, at least one of the ingestion, one a question.
answered=$(grep -c 'POST /embeddings.* 200' "$work/server.log" || true)
say "infinity logged $answered requests answered"
[ "$answered" -ge 55 ] || die "so few cannot be all: something else made the vectors"
say "test-real passed: every coordinate within $TOLERANCE, every document found"
