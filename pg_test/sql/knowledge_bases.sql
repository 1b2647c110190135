-- Knowledge bases: creating, altering, dropping, and everything that can be wrong with one.
\pset format unaligned
\pset tuples_only on
SET default_text_search_config = 'pg_catalog.english';
SELECT kb.create_embedder('kbs_emb', 'hash', dimension => 8);
SELECT kb.create_embedder('kbs_short', 'hash', dimension => 8, config => '{"max_input_tokens": 50}');
SELECT kb.create_vector_db('kbs_shared', 'pgvector', 8);
SELECT kb.create_vector_db('kbs_mem', 'memory', 8);

-- Defaults, all written out.
SELECT try($$SELECT kb.create_knowledge_base('kbs_default')$$);
SELECT tenant_id, id, description, embedder, vector_db, chunking, preprocess, retrieval, metadata
FROM kb.knowledge_bases WHERE id = 'kbs_default';
SELECT try($$SELECT kb.create_knowledge_base('kbs_hash', 'hash')$$);
SELECT embedder, chunking FROM kb.knowledge_bases WHERE id = 'kbs_hash';
SET kb.default_embedder = 'kbs_short';
SELECT try($$SELECT kb.create_knowledge_base('kbs_short')$$);
RESET kb.default_embedder;
SELECT embedder, chunking FROM kb.knowledge_bases WHERE id = 'kbs_short';
-- Everything given.
SELECT try($$SELECT kb.create_knowledge_base('kbs_all', 'kbs_emb', 'kbs_shared', 'All settings',
    '{"strategy": "markdown", "size": 300, "overlap": 0, "unit": "characters", "tokenizer": "text-embedding-3-small"}',
    '{"dedupe": false, "remove_html": false}',
    '{"top_k": 3, "min_score": 0.25, "max_tokens": 1000, "ef_search": 100}', '{"team": "hr"}')$$);
SELECT tenant_id, id, description, embedder, vector_db, chunking, preprocess, retrieval, metadata
FROM kb.knowledge_bases WHERE id = 'kbs_all';
SELECT try($$SELECT kb.create_knowledge_base('Ünï "kb"; --', 'kbs_emb', 'kbs_mem')$$);
SELECT kb_id, tenant_id, documents, ready, pending, failed, chunks, vectors, eta FROM kb.status WHERE kb_id LIKE 'Ü%';
-- overlap follows size
SELECT try($$SELECT kb.create_knowledge_base('kbs_overlap', 'hash', chunking => '{"size": 100}')$$);
SELECT chunking->'overlap' FROM kb.knowledge_bases WHERE id = 'kbs_overlap';

-- Errors.
SELECT try($$SELECT kb.create_knowledge_base('kbs_hash', 'hash')$$);
SELECT try($$SELECT kb.create_knowledge_base('kbs_x', 'no_such')$$);
SELECT try($$SELECT kb.create_knowledge_base('kbs_x', 'hash', 'no_such')$$);
SELECT try($$SELECT kb.create_knowledge_base('kbs_x', 'hash', 'kbs_shared')$$);
SELECT try($$SELECT kb.create_knowledge_base('', 'hash')$$);
SELECT try($$SELECT kb.create_knowledge_base('kbs_x', 'hash', chunking => '{"size": 0}')$$);
SELECT try($$SELECT kb.create_knowledge_base('kbs_x', 'hash', chunking => '{"size": -5}')$$);
SELECT try($$SELECT kb.create_knowledge_base('kbs_x', 'hash', chunking => '{"size": 2000000}')$$);
SELECT try($$SELECT kb.create_knowledge_base('kbs_x', 'hash', chunking => '{"size": "800"}')$$);
SELECT try($$SELECT kb.create_knowledge_base('kbs_x', 'hash', chunking => '{"size": 12.5}')$$);
SELECT try($$SELECT kb.create_knowledge_base('kbs_x', 'hash', chunking => '{"size": 100, "overlap": 100}')$$);
SELECT try($$SELECT kb.create_knowledge_base('kbs_x', 'hash', chunking => '{"overlap": 900}')$$);
SELECT try($$SELECT kb.create_knowledge_base('kbs_x', 'minilm', chunking => '{"size": 300}')$$);
SELECT try($$SELECT kb.create_knowledge_base('kbs_x', 'kbs_short', chunking => '{"size": 51}')$$);
SELECT try($$SELECT kb.create_knowledge_base('kbs_x', 'hash', chunking => '{"strategy": "clauses"}')$$);
SELECT try($$SELECT kb.create_knowledge_base('kbs_x', 'hash', chunking => '{"tokenizer": "llama"}')$$);
SELECT try($$SELECT kb.create_knowledge_base('kbs_x', 'hash', chunking => '{"chunk_size": 100}')$$);
SELECT try($$SELECT kb.create_knowledge_base('kbs_x', 'hash', preprocess => '{"dedup": true}')$$);
SELECT try($$SELECT kb.create_knowledge_base('kbs_x', 'hash', retrieval => '{"top_k": 0, "max_tokens": 1.5, "ef_search": 2000}')$$);
SELECT try($$SELECT kb.create_knowledge_base('kbs_x', 'hash', retrieval => '{"min_score": "high"}')$$) ~ '^22023: .*retrieval.min_score: must be a number';
SET kb.default_embedder = 'no_such';
SELECT try($$SELECT kb.create_knowledge_base('kbs_x')$$);
RESET kb.default_embedder;
SELECT try($$SELECT kb.create_knowledge_base('kbs_x', 'hash', metadata => '[]')$$);
SELECT try($$SELECT kb.create_knowledge_base('kbs_x', 'hash', chunking => '[]', preprocess => '1', retrieval => '"x"')$$);
-- All at once.
SELECT try($$SELECT kb.create_knowledge_base(' ', 'minilm', 'kbs_shared', NULL,
    '{"size": 300, "overlap": 300, "unit": "words", "strategy": "x", "sise": 3}', '{"dedupe": "yes", "dedup": 1}',
    '{"top_k": 0, "topk": 5}', '3')$$);
SELECT try($$SELECT kb.create_knowledge_base('kbs_x', 'no_such', 'no_such', chunking => '{"size": 0}')$$);
SELECT id FROM kb.knowledge_bases WHERE id LIKE 'kbs_x%' OR btrim(id) = '';

-- Altering: what is given changes, the rest stays; the etag tells.
SELECT kb.get_knowledge_base('kbs_all') ->> 'etag' AS before \gset
SELECT try($$SELECT kb.alter_knowledge_base('kbs_all', retrieval => '{"top_k": 7, "min_score": 0.25, "max_tokens": 1000, "ef_search": 100}', description => 'Fewer settings')$$);
SELECT description, embedder, vector_db, chunking, preprocess, retrieval, metadata, kb.get_knowledge_base(id) ->> 'etag' <> :'before'
FROM kb.knowledge_bases WHERE id = 'kbs_all';
-- A knowledge base without documents is made again at once, without a notice.
SELECT kb.alter_knowledge_base('kbs_hash', embedder => 'kbs_emb', chunking => '{"size": 40}');
SELECT embedder, chunking FROM kb.knowledge_bases WHERE id = 'kbs_hash';
SELECT b.state, b.embedder, b.chunking FROM kb.builds b JOIN kb.knowledge_bases k USING (kb_no) WHERE k.id = 'kbs_hash';
-- One with documents says what to do.
SELECT kb.put_document('kbs_hash', 'd1', 'One little document.');
SELECT kb.wait('kbs_hash', 30);
SELECT kb.alter_knowledge_base('kbs_hash', chunking => '{"size": 30}');
-- Errors.
SELECT try($$SELECT kb.alter_knowledge_base('kbs_none', description => 'x')$$);
SELECT try($$SELECT kb.alter_knowledge_base('kbs_all', embedder => 'hash')$$);
SELECT try($$SELECT kb.alter_knowledge_base('kbs_all', embedder => 'no_such', chunking => '{"overlap": 800}', retrieval => '{"k": 1}')$$);
SELECT embedder, chunking->'size', retrieval->'top_k' FROM kb.knowledge_bases WHERE id = 'kbs_all';
-- Nothing given: nothing changes.
SELECT kb.get_knowledge_base('kbs_all') ->> 'etag' AS before \gset
SELECT try($$SELECT kb.alter_knowledge_base('kbs_all')$$);
SELECT kb.get_knowledge_base('kbs_all') ->> 'etag' = :'before';

-- Dropping.
SELECT try($$SELECT kb.drop_knowledge_base('kbs_none')$$);
SELECT kb_no FROM kb.knowledge_bases WHERE id = 'kbs_hash' \gset
SELECT table_name FROM kb.builds WHERE kb_no = :kb_no \gset
SELECT count(*) FROM kb.documents WHERE kb_no = :kb_no;
SELECT kb.drop_knowledge_base('kbs_hash');
SELECT (SELECT count(*) FROM kb.documents WHERE kb_no = :kb_no) + (SELECT count(*) FROM kb.chunks WHERE kb_no = :kb_no)
     + (SELECT count(*) FROM kb.jobs WHERE kb_no = :kb_no) + (SELECT count(*) FROM kb.builds WHERE kb_no = :kb_no) AS left_behind;
-- The worker drops the table.
SELECT format('SELECT to_regclass(%L) IS NULL', 'kb.' || :'table_name') AS table_gone \gset
CALL until(:'table_gone');
-- Of a shared table only its own rows go.
SELECT kb.create_knowledge_base('kbs_s1', 'kbs_emb', 'kbs_shared'), kb.create_knowledge_base('kbs_s2', 'kbs_emb', 'kbs_shared');
SELECT kb.put_document('kbs_s1', 'd', 'first text'), kb.put_document('kbs_s2', 'd', 'second text');
SELECT kb.wait('kbs_s1', 30), kb.wait('kbs_s2', 30);
SELECT kb_id, vectors FROM kb.status WHERE kb_id LIKE 'kbs_s_' ORDER BY 1;
SELECT content FROM kb.query('kbs_s1', 'second text');
SELECT kb.drop_knowledge_base('kbs_s1');
SELECT kb_id, vectors FROM kb.status WHERE kb_id LIKE 'kbs_s_' ORDER BY 1;
SELECT content FROM kb.query('kbs_s2', 'text');
-- A drop in a transaction that is rolled back did not happen.
BEGIN;
SELECT kb.drop_knowledge_base('kbs_s2');
SELECT try($$SELECT kb.query('kbs_s2', 'text')$$);
ROLLBACK;
SELECT content FROM kb.query('kbs_s2', 'text');
-- Created, filled and dropped again in one.
BEGIN;
SELECT kb.create_knowledge_base('kbs_brief', 'hash');
SELECT kb.put_document('kbs_brief', 'd', 'text');
SELECT kb.drop_knowledge_base('kbs_brief');
COMMIT;
SELECT count(*) FROM kb.knowledge_bases WHERE id = 'kbs_brief';

SELECT kb.drop_knowledge_base(id) FROM kb.knowledge_bases WHERE id LIKE 'kbs%' OR id LIKE 'Ü%';
SELECT kb.drop_vector_db(id) FROM kb.vector_dbs WHERE id LIKE 'kbs%';
SELECT kb.drop_embedder(id) FROM kb.embedders WHERE id LIKE 'kbs%';
SELECT count(*) FROM kb.knowledge_bases;
-- What else can be wrong with settings and ids.
SELECT try($$SELECT kb.create_knowledge_base('kbs_x', 'hash', preprocess => '{"language": "klingon"}')$$);
SELECT try($$SELECT kb.create_knowledge_base('kbs_x', 'hash', retrieval => '{"on_error": "shrug"}')$$);
SELECT left(try(format($$SELECT kb.create_knowledge_base('%s', 'hash')$$, repeat('x', 256))), 5),
       left(try(format($$SELECT kb.create_embedder('%s', 'hash')$$, repeat('x', 256))), 5),
       left(try(format($$SELECT kb.create_vector_db('%s')$$, repeat('x', 256))), 5);
SELECT kb.create_knowledge_base('kbs_nothing', 'hash');
SELECT try($$SELECT * FROM kb.query('kbs_nothing', 'x', options => '{"on_error": "shrug"}')$$);
SELECT kb.put_document('kbs_nothing', 'deep.html', repeat('<div>', 300));
SELECT kb.wait('kbs_nothing', 60);
SELECT external_id, error ~ 'more than 200 deep', sqlstate FROM kb.failures WHERE kb_id = 'kbs_nothing';
SELECT kb.drop_knowledge_base('kbs_nothing');
