-- Embedders: creating, altering, dropping, checking, embedding, counting tokens.
\pset format unaligned
\pset tuples_only on

-- Normal use.
SELECT try($$SELECT kb.create_embedder('emb_small', 'hash', dimension => 8)$$);
SELECT try($$SELECT kb.create_embedder('emb_default', 'hash')$$);
SELECT id, provider, model, dimension, config, seeded FROM kb.embedders WHERE id LIKE 'emb%' ORDER BY id;
SELECT try($$SELECT kb.alter_embedder('emb_small', dimension => 16, config => '{"query_prefix": "q: "}')$$);
SELECT id, dimension, config FROM kb.embedders WHERE id = 'emb_small';
-- What is not given stays.
SELECT try($$SELECT kb.alter_embedder('emb_small', config => '{"max_input_tokens": 4}')$$);
SELECT id, dimension, config FROM kb.embedders WHERE id = 'emb_small';
SELECT ok, dimension, latency_ms > 0, problem FROM kb.check_embedder('emb_small');

-- Two names of one model share a fingerprint; another dimension is another.
SELECT try($$SELECT kb.create_embedder('emb_hash2', 'hash', dimension => 384)$$);
SELECT a.fingerprint = b.fingerprint, a.fingerprint <> c.fingerprint
FROM kb.embedders a, kb.embedders b, kb.embedders c WHERE a.id = 'hash' AND b.id = 'emb_hash2' AND c.id = 'emb_small';

-- kb.embed: one row a text, in order, unit length, deterministic.
SELECT count(*), min(vector_dims(v)), max(abs(vector_norm(v) - 1)) < 1e-5
FROM kb.embed('hash', ARRAY['the quick brown fox', 'lazy dog', '']) v;
SELECT (SELECT array_agg(v) FROM kb.embed('hash', ARRAY['fox', 'dog']) v)
     = (SELECT array_agg(v) FROM kb.embed('hash', ARRAY['fox', 'dog'], 'document') v);
SELECT count(*) FROM kb.embed('hash', '{}') v;
SELECT count(*) FROM kb.embed('hash', (SELECT array_agg('text ' || i) FROM generate_series(1, 500) i)) v;
-- Texts that share words are nearer than texts that do not.
SELECT (v[1] <=> v[2]) < (v[1] <=> v[3])
FROM (SELECT array_agg(v) AS v FROM kb.embed('hash', ARRAY['annual leave for employees', 'employees take annual leave', 'database index tuning']) v) s;

-- Prefixes tell queries and documents apart.
SELECT try($$SELECT kb.create_embedder('emb_prefix', 'hash', dimension => 64, config => '{"query_prefix": "query: ", "document_prefix": "passage: "}')$$);
SELECT (SELECT v FROM kb.embed('emb_prefix', '{"black cat"}', 'query') v) = (SELECT v FROM kb.embed('emb_prefix', '{"black cat"}', 'document') v);
-- The same meaning with the prefix written out by hand, in an embedder without it.
SELECT try($$SELECT kb.create_embedder('emb_plain', 'hash', dimension => 64)$$);
SELECT (SELECT v FROM kb.embed('emb_prefix', '{"black cat"}', 'query') v) = (SELECT v FROM kb.embed('emb_plain', '{"query: black cat"}') v);

-- Longer than the model reads: an error, unless the embedder says to cut.
SELECT try($$SELECT kb.embed('emb_small', '{"one two three four five six seven"}')$$);
SELECT try($$SELECT kb.create_embedder('emb_cut', 'hash', dimension => 16, config => '{"max_input_tokens": 4, "truncate": true}')$$);
SELECT (SELECT v FROM kb.embed('emb_cut', '{"one two three four five"}') v) = (SELECT v FROM kb.embed('emb_cut', '{"one two three four six"}') v);

-- Tokens.
-- Words and single signs, as chunks of this embedder are counted.
SELECT kb.count_tokens('Hello, wide world!', 'hash'), kb.count_tokens('', 'hash'), kb.count_tokens('   ', 'hash');
SELECT kb.count_tokens('unbelievable', 'minilm') > 0, kb.count_tokens('hello world', 'minilm'), kb.count_tokens('hello world', 'static') > 1;
SELECT kb.count_tokens('hello world') = kb.count_tokens('hello world', 'minilm') AS default_embedder;
SET kb.default_embedder = 'hash';
SELECT kb.count_tokens('a-b-c') AS by_default_embedder;
RESET kb.default_embedder;

-- Models of the local provider: dimension and limits come from their files.
SELECT ok, dimension, problem FROM kb.check_embedder('minilm');
SELECT ok, dimension, problem FROM kb.check_embedder('static');
SELECT id, (v[1] <=> v[2]) < 0.5 AS near, (v[1] <=> v[3]) > 0.7 AS far
FROM (VALUES ('minilm'), ('static')) e (id),
     LATERAL (SELECT array_agg(v) AS v FROM kb.embed(e.id, ARRAY['How many vacation days do employees get?',
         'Employees get thirty vacation days a year.', 'The hydraulic pump leaks oil.']) v) s ORDER BY id;
SELECT max(abs(vector_norm(v) - 1)) < 1e-4 FROM kb.embed('minilm', '{"a", "a longer text with some more words"}') v;
SELECT try($$SELECT kb.embed('minilm', ARRAY[repeat('word ', 300)])$$);
SELECT try($$SELECT kb.create_embedder('emb_local', 'local', 'all-MiniLM-L6-v2', config => '{"max_input_tokens": 32}')$$);
SELECT dimension FROM kb.embedders WHERE id = 'emb_local';
SELECT try($$SELECT kb.embed('emb_local', ARRAY[repeat('word ', 31)])$$);

-- Errors.
SELECT try($$SELECT kb.create_embedder('emb_small', 'hash')$$);
SELECT try($$SELECT kb.create_embedder('', 'hash')$$);
SELECT try($$SELECT kb.create_embedder('emb_x', 'nope', 'text-embedding-3-small')$$);
SELECT try($$SELECT kb.create_embedder('emb_x', 'hash', dimension => 0)$$);
SELECT try($$SELECT kb.create_embedder('emb_x', 'hash', dimension => 4001)$$);
SELECT try($$SELECT kb.create_embedder('emb_x', 'hash', 'minilm')$$);
SELECT try($$SELECT kb.create_embedder('emb_x', 'local')$$);
SELECT try($$SELECT kb.create_embedder('emb_x', 'local', 'no-such-model') $$) ~ '^22023: invalid configuration of embedder "emb_x"\ndetail: model "no-such-model": there is no such directory' AS missing;
SELECT try($$SELECT kb.create_embedder('emb_x', 'local', '../models/all-MiniLM-L6-v2')$$);
SELECT try($$SELECT kb.create_embedder('emb_x', 'local', '/etc')$$);
SELECT try($$SELECT kb.create_embedder('emb_x', 'local', '..')$$);
SELECT try($$SELECT kb.create_embedder('emb_x', 'local', '')$$);
SELECT try($$SELECT kb.create_embedder('emb_x', 'local', 'all-MiniLM-L6-v2/1_Pooling')$$);
SELECT try($$SELECT kb.create_embedder('emb_x', 'local', 'all-MiniLM-L6-v2', 300)$$);
SELECT try($$SELECT kb.create_embedder('emb_x', 'local', 'all-MiniLM-L6-v2', config => '{"max_input_tokens": 10000}')$$);
SELECT try($$SELECT kb.create_embedder('emb_x', 'local', 'all-MiniLM-L6-v2', config => '{"compute": "int4"}')$$);
SELECT try($$SELECT kb.create_embedder('emb_x', 'local', 'wordllama-l2-supercat-256', config => '{"compute": "int8"}')$$);
SELECT try($$SELECT kb.create_embedder('emb_x', 'hash', config => '{"compute": "int8"}')$$);
-- In 8 bits: nearly the same vectors, but not those of f32, which no knowledge base may mix with them.
SELECT kb.create_embedder('emb_int8', 'local', 'all-MiniLM-L6-v2', config => '{"compute": "int8"}');
SELECT round((1 - (a.v <=> b.v))::numeric, 2) AS cosine, a.v = b.v AS same,
    (SELECT count(DISTINCT fingerprint) FROM kb.embedders WHERE id IN ('minilm', 'emb_int8')) AS fingerprints
FROM kb.embed('minilm', '{"how many days off do I get?"}') a(v), kb.embed('emb_int8', '{"how many days off do I get?"}') b(v);
-- Several at once.
SELECT try($$SELECT kb.create_embedder(' ', 'hash', dimension => -1, base_url => 'https://x', secret => 'env:KEY',
    config => '{"pooling": "max", "batch_size": 0, "normalise": true, "truncate": "yes"}')$$);
SELECT try($$SELECT kb.create_embedder('emb_x', 'hash', config => '[1]')$$);
SELECT try($$SELECT kb.alter_embedder('emb_small', dimension => 0, config => '{"x": 1}')$$);
SELECT try($$SELECT kb.alter_embedder('emb_none', dimension => 1)$$);
SELECT try($$SELECT kb.drop_embedder('emb_none')$$);
SELECT try($$SELECT kb.check_embedder('emb_none')$$);
SELECT try($$SELECT kb.embed('emb_none', '{"x"}')$$);
SELECT try($$SELECT kb.embed('hash', '{"x"}', 'passage')$$);
SELECT try($$SELECT kb.embed('hash', ARRAY['x', NULL])$$) ~ '^22(004|023): .*texts';
SELECT count(*) FROM kb.embed('hash', '{{"a","b"},{"c","d"}}');
SELECT try($$SELECT kb.count_tokens('x', 'emb_none')$$);
SET kb.default_embedder = 'emb_none';
SELECT try($$SELECT kb.count_tokens('x')$$);
RESET kb.default_embedder;
-- What comes with kb stays as it is.
SELECT try($$SELECT kb.alter_embedder('minilm', config => '{"truncate": true}')$$);
SELECT try($$SELECT kb.drop_embedder('hash')$$);

-- In use: no drop, and no change of what vectors mean; batch_size may change.
SELECT try($$SELECT kb.create_knowledge_base('emb_kb', 'emb_plain')$$);
SELECT try($$SELECT kb.drop_embedder('emb_plain')$$);
SELECT try($$SELECT kb.alter_embedder('emb_plain', dimension => 65)$$);
SELECT try($$SELECT kb.alter_embedder('emb_plain', config => '{"query_prefix": "q"}')$$);
SELECT try($$SELECT kb.alter_embedder('emb_plain', config => '{"batch_size": 7}')$$);
SELECT kb.drop_knowledge_base('emb_kb');
SELECT try($$SELECT kb.drop_embedder('emb_plain')$$);

-- Nothing was left half done by the errors.
SELECT id FROM kb.embedders WHERE NOT seeded ORDER BY id;
SELECT kb.drop_embedder(id) FROM kb.embedders WHERE NOT seeded;
