-- kb.query and kb.query_vector.
\pset format unaligned
\pset tuples_only on
SELECT kb.create_knowledge_base('q', 'hash', chunking => '{"size": 60, "overlap": 0}');
SELECT count(*) FROM kb.put_documents('q', ARRAY[
    '{"external_id": "leave", "title": "Leave", "content": "Employees have thirty days of annual leave each year.", "metadata": {"team": "hr", "year": 2024, "tags": ["a", "b"], "nested": {"x": 1, "y": 2}}}',
    '{"external_id": "travel", "content": "Business travel is booked by the travel office.", "metadata": {"team": "ops", "year": 2024}}',
    '{"external_id": "sick", "content": "Employees who fall sick tell their manager before nine.", "metadata": {"team": "hr", "year": 2023}}',
    '{"external_id": "pump", "content": "The hydraulic pump must be serviced every thousand hours.", "metadata": {"team": "plant"}}',
    '{"external_id": "copy", "content": "Business travel is booked by the travel office.", "metadata": {"team": "sales"}}']::jsonb[]);
SELECT kb.wait('q', 30);

-- The whole row.
SELECT rank, kb_id, external_id, title, content, score > 0.3 AS good, score = rank_score AS same, token_count, metadata, locator, stale
FROM kb.query('q', 'how many days of annual leave do employees have', 1);
SELECT c.chunk_id = q.chunk_id FROM kb.query('q', 'annual leave', 1) q, kb.chunks c JOIN kb.documents d USING (document_id) WHERE d.external_id = 'leave';
-- Ranks count from 1, scores do not rise, all are in 0..1; a knowledge base's own top_k is 5.
SELECT count(*), array_agg(rank ORDER BY rank), bool_and(score <= before) IS NOT FALSE AS falling, bool_and(score BETWEEN 0 AND 1) AS in_range
FROM (SELECT rank, score, lag(score, 1, 2) OVER (ORDER BY rank) AS before FROM kb.query('q', 'employees travel')) s;
SELECT count(*) FROM kb.query('q', 'employees', 2);
SELECT count(*) FROM kb.query('q', 'employees', 10000);

-- The same text in two documents is answered once, and the locator says where else it is.
SELECT (SELECT array_agg(x ORDER BY x) FROM unnest(external_id || ARRAY(
            SELECT a->>'external_id' FROM jsonb_array_elements(locator->'also_in') a)) x) AS documents, content
FROM kb.query('q', 'who books business travel', 1);
SELECT count(*) FROM kb.query('q', 'who books business travel', 5) WHERE content LIKE 'Business%';
SELECT a->>'chunk_id' = c.chunk_id::text AS names_the_chunk
FROM kb.query('q', 'who books business travel', 1) q, jsonb_array_elements(q.locator->'also_in') a,
     kb.chunks c JOIN kb.documents d USING (document_id) WHERE d.external_id = a->>'external_id' AND c.content LIKE 'Business%';
-- Under a filter the other document answers, if only that qualifies.
SELECT external_id FROM kb.query('q', 'who books business travel', filter => '{"team": "sales"}');
SELECT external_id FROM kb.query('q', 'who books business travel', filter => '{"team": "ops"}');
-- Without dedupe both are rows.
SELECT kb.create_knowledge_base('q_all', 'hash', preprocess => '{"dedupe": false}');
SELECT kb.put_document('q_all', 'one', 'The same words.'), kb.put_document('q_all', 'two', 'The same words.');
SELECT kb.wait('q_all', 30);
SELECT external_id, score > 0.99, locator FROM kb.query('q_all', 'the same words') ORDER BY 1;

-- filter: every key must match exactly.
SELECT external_id FROM kb.query('q', 'employees', filter => '{"team": "hr"}') ORDER BY 1;
SELECT external_id FROM kb.query('q', 'employees', filter => '{"team": "hr", "year": 2023}') ORDER BY 1;
SELECT count(*) FROM kb.query('q', 'employees', filter => '{"team": "nobody"}');
SELECT count(*) FROM kb.query('q', 'employees', filter => '{"no_such_key": 1}');
SELECT count(*) FROM kb.query('q', 'employees', filter => '{"year": "2023"}') AS a_string_is_no_number;
SELECT external_id FROM kb.query('q', 'employees', filter => '{"nested": {"x": 1, "y": 2}}') ORDER BY 1;
SELECT count(*) FROM kb.query('q', 'employees', 10, filter => '{}') AS no_filter;
SELECT count(*) FROM kb.query('q', 'employees', filter => '{"team": "''; DROP TABLE kb.chunks; --"}');

-- min_score, inclusive; max_tokens drops the lowest scored.
SELECT external_id FROM kb.query('q', 'annual leave days of employees each year', 5, 0.3);
SELECT count(*) FROM kb.query('q', 'annual leave', 5, 1.1);
SELECT count(*) = 1 FROM kb.query('q', 'annual leave', 5, (SELECT max(score) FROM kb.query('q', 'annual leave')));
SELECT max(tokens) <= 20 AS fits, count(*) FROM (SELECT sum(token_count) OVER (ORDER BY rank) AS tokens FROM kb.query('q', 'employees annual leave', 5, max_tokens => 20)) s;
SELECT count(*) FROM kb.query('q', 'employees', 5, max_tokens => 1);
SELECT (SELECT array_agg(external_id ORDER BY rank) FROM kb.query('q', 'employees annual leave', 5, max_tokens => 20))
     = (SELECT array_agg(external_id ORDER BY rank) FROM kb.query('q', 'employees annual leave', 5) WHERE rank <= 2) AS best_stay;
-- The knowledge base's own bounds, and the call's above them.
SELECT kb.alter_knowledge_base('q', retrieval => '{"top_k": 2, "max_tokens": 1000}');
SELECT count(*) FROM kb.query('q', 'employees');
SELECT count(*) FROM kb.query('q', 'employees', 3);
SELECT kb.alter_knowledge_base('q', retrieval => '{"min_score": 1.1}');
SELECT count(*) FROM kb.query('q', 'employees');
SELECT count(*) FROM kb.query('q', 'employees', min_score => 0);
SELECT kb.alter_knowledge_base('q', retrieval => '{}');

-- A vector as the question gives the same answer.
SELECT (SELECT array_agg((rank, external_id, score)) FROM kb.query('q', 'sick employees'))
     = (SELECT array_agg((rank, external_id, score)) FROM kb.query_vector('q', (SELECT v FROM kb.embed('hash', '{sick employees}', 'query') v)));
SELECT external_id FROM kb.query_vector('q', (SELECT v FROM kb.embed('hash', '{sick employees}', 'query') v), 1, 0.1, '{"team": "hr"}', 100);

-- An edit is stale until it is done; then the new text answers.
SELECT kb.put_document('q', 'pump', 'The hydraulic pump must be serviced every two thousand hours.', '{"team": "plant"}');
SELECT kb.wait('q', 30);
SELECT content, stale FROM kb.query('q', 'hydraulic pump', 1);
BEGIN;
SELECT kb.put_document('q', 'pump', 'The hydraulic pump needs no service.', '{"team": "plant"}');
SELECT content, stale FROM kb.query('q', 'hydraulic pump', 1);
ROLLBACK;
SELECT content, stale FROM kb.query('q', 'hydraulic pump', 1);
-- Deleted is gone at that commit, and within the transaction.
BEGIN;
SELECT kb.delete_document('q', 'pump');
SELECT count(*) FROM kb.query('q', 'hydraulic pump', 10) WHERE external_id = 'pump';
COMMIT;
SELECT count(*) FROM kb.query('q', 'hydraulic pump', 10) WHERE external_id = 'pump';

-- An empty knowledge base answers with no rows.
SELECT kb.create_knowledge_base('q_empty', 'hash');
SELECT count(*) FROM kb.query('q_empty', 'anything'), kb.wait('q_empty', 1);

-- Metrics.
SELECT kb.create_embedder('q_8', 'hash', dimension => 64);
SELECT kb.create_vector_db('q_' || m, t, 64, m) FROM (VALUES ('l2', 'pgvector'), ('ip', 'memory')) v (m, t);
SELECT kb.create_knowledge_base('q_l2', 'q_8', 'q_l2'), kb.create_knowledge_base('q_ip', 'q_8', 'q_ip');
SELECT kb.put_document(k, i, t) FROM (VALUES ('q_l2'), ('q_ip')) k (k), (VALUES ('1', 'alpha beta gamma'), ('2', 'alpha delta epsilon'), ('3', 'zeta eta theta')) d (i, t);
SELECT kb.wait('q_l2', 30), kb.wait('q_ip', 30);
SELECT k, array_agg(external_id ORDER BY rank), max(score) > 0.99 AS itself FROM (VALUES ('q_l2'), ('q_ip')) k (k), kb.query(k, 'alpha beta gamma', 2) GROUP BY k ORDER BY k;

-- More than one index can hold: top_k rows whenever so many qualify, with an index and a filter.
SELECT kb.create_vector_db('q_small', 'pgvector', 64, 'cosine', '{"min_rows": 100}');
SELECT kb.create_knowledge_base('q_many', 'q_8', 'q_small', chunking => '{"strategy": "none"}');
SELECT count(*) FROM kb.put_documents('q_many', (SELECT array_agg(jsonb_build_object('external_id', 'd' || i, 'content', 'document ' || md5(i::text) || ' number ' || i,
    'metadata', jsonb_build_object('rare', i % 1000 = 7, 'n', i))) FROM generate_series(1, 2000) i));
SELECT kb.wait('q_many', 60);
SELECT kb_id, documents, ready, chunks, vectors FROM kb.status WHERE kb_id = 'q_many';
-- The worker builds the index after the last document, without blocking anybody.
CALL until($$SELECT count(*) = 1 FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_am m ON m.oid = x.relam
    WHERE c.relname = (SELECT table_name FROM kb.vector_dbs WHERE id = 'q_small') AND m.amname = 'hnsw' AND i.indisvalid$$);
SELECT count(*), count(DISTINCT chunk_id) FROM kb.query('q_many', 'document number', 100);
SELECT external_id FROM kb.query('q_many', 'document number', 5, filter => '{"rare": true}') ORDER BY 1;
SELECT count(*) FROM kb.query('q_many', 'document number', 2000);
SELECT count(*) FROM kb.query('q_many', 'document number', 2, filter => '{"rare": false}');
SELECT external_id FROM kb.query('q_many', (SELECT content FROM kb.documents WHERE external_id = 'd1234'), 1);

-- A real model finds what shares no word with the question.
SELECT kb.create_knowledge_base('q_' || e, e) FROM (VALUES ('minilm'), ('static')) e (e);
SELECT kb.put_document('q_' || e, i, t) FROM (VALUES ('minilm'), ('static')) e (e),
    (VALUES ('leave', 'Employees are entitled to thirty days of paid annual leave.'), ('pump', 'Replace the seal of the hydraulic pump after a thousand hours.'),
            ('bread', 'Knead the dough and bake the bread for forty minutes.')) d (i, t);
SELECT kb.wait('q_minilm', 60), kb.wait('q_static', 60);
SELECT e, external_id, score > 0.3 AS good FROM (VALUES ('minilm'), ('static')) e (e), kb.query('q_' || e, 'How much vacation do workers get?', 1) ORDER BY 1;
SELECT e, external_id FROM (VALUES ('minilm'), ('static')) e (e), kb.query('q_' || e, 'baking a loaf', 1) ORDER BY 1;

-- Errors.
SELECT try($$SELECT kb.query('q_none', 'x')$$);
SELECT try($$SELECT kb.query('q', '')$$);
SELECT try($$SELECT kb.query('q', E' \n ')$$);
SELECT try($$SELECT kb.query('q', 'x', 0)$$);
SELECT try($$SELECT kb.query('q', 'x', -1)$$);
SELECT try($$SELECT kb.query('q', 'x', 10001)$$);
SELECT try($$SELECT kb.query('q', 'x', min_score => 'NaN')$$);
SELECT try($$SELECT kb.query('q', 'x', min_score => 'Infinity')$$) ~ '^22023: invalid min_score: ';
SELECT try($$SELECT kb.query('q', 'x', filter => '[]')$$);
SELECT try($$SELECT kb.query('q', 'x', filter => '"team"')$$);
SELECT try($$SELECT kb.query('q', 'x', max_tokens => 0)$$);
SELECT try($$SELECT count(*) FROM kb.query('q', 'sick', mode => 'hybrid')$$);
SELECT try($$SELECT kb.query('q', 'x', mode => 'fast')$$);
SELECT try($$SELECT count(*) FROM kb.query('q', 'sick', options => '{"ef_search": 100}')$$);
SELECT try($$SELECT count(*) FROM kb.query('q', 'sick', options => '{"ef": 100}')$$);
SELECT try($$SELECT kb.query('q', 'x', options => '[]')$$);
SELECT try($$SELECT count(*) FROM kb.query('q', 'x', options => '{}')$$);
SELECT try($$SELECT kb.query_vector('q', '[1,2,3]')$$);
SELECT try($$SELECT kb.query_vector('q_none', '[1,2,3]')$$);
SELECT try($$SELECT kb.query_vector('q', '[1,2,3]', 0)$$);
SELECT try($$SELECT kb.query('q_minilm', repeat('word ', 300))$$);
-- A zero vector has no direction, also one that is zero as the table stores it.
SELECT try($$SELECT count(*) FROM kb.query_vector('q_l2', array_fill(0, ARRAY[64])::vector)$$);
SELECT try($$SELECT kb.query_vector('q', array_fill(0, ARRAY[384])::vector)$$);
SELECT try($$SELECT kb.query_vector('q', array_fill(1e-30, ARRAY[384])::vector)$$);
SELECT kb.create_vector_db('q_half', dimension => 384, config => '{"element": "halfvec"}'), kb.create_knowledge_base('q_half', 'hash', 'q_half');
SELECT try($$SELECT kb.query_vector('q_half', array_fill(1e-9, ARRAY[384])::vector)$$);
SELECT try($$SELECT kb.query_vector('q_half', array_fill(1e6, ARRAY[384])::vector)$$);
SELECT try($$SELECT count(*) FROM kb.query_vector('q_half', array_fill(1, ARRAY[384])::vector)$$);

SELECT kb.drop_knowledge_base(id) FROM kb.knowledge_bases WHERE id ~ '^q(_|$)';
SELECT kb.drop_vector_db(id) FROM kb.vector_dbs WHERE id LIKE 'q\_%';
SELECT kb.drop_embedder('q_8');
