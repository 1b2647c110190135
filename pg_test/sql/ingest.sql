-- kb.ingest, runs, kb.wait and kb.retry.
\pset format unaligned
\pset tuples_only on
SELECT kb.create_embedder('ing_a', 'hash', dimension => 32, config => '{"max_input_tokens": 50}');
SELECT kb.create_embedder('ing_b', 'hash', dimension => 48);
SELECT kb.create_knowledge_base('ing', 'ing_a', chunking => '{"size": 10, "overlap": 0}');
SELECT count(*) FROM kb.put_documents('ing', (SELECT array_agg(jsonb_build_object('external_id', 'd' || i, 'content',
    'Document number ' || i || ' says one thing. ' || repeat('It says it again. ', 5))) FROM generate_series(1, 20) i));
SELECT kb.wait('ing', 30);
CREATE TEMP VIEW ing_runs AS SELECT strategy, r.state, scanned, added, updated, skipped, deleted, failed, error, finished_at >= started_at AS finished
FROM kb.runs r JOIN kb.knowledge_bases k USING (kb_no) WHERE k.id = 'ing' ORDER BY run_no DESC LIMIT 1;
CREATE TEMP TABLE before AS SELECT chunk_id, build_no FROM kb.chunks c JOIN kb.knowledge_bases k USING (kb_no) WHERE k.id = 'ing';

-- Nothing to do.
SELECT kb.ingest('ing') AS run \gset
SELECT kb.wait(:run, 30);
SELECT * FROM ing_runs;
-- Another chunking: upsert takes up all, once.
SELECT kb.alter_knowledge_base('ing', chunking => '{"size": 20, "overlap": 0}');
SELECT kb.ingest('ing') AS run \gset
SELECT kb.wait('ing', 30);
SELECT * FROM ing_runs;
SELECT max(token_count) BETWEEN 11 AND 20 FROM kb.chunks c JOIN kb.knowledge_bases k USING (kb_no) WHERE k.id = 'ing';
SELECT kb.ingest('ing', 'upsert') AS run \gset
SELECT kb.wait(:run, 30);
SELECT * FROM ing_runs;
-- Back again: a chunk's id comes from its content.
SELECT kb.alter_knowledge_base('ing', chunking => '{"size": 10, "overlap": 0}');
SELECT kb.ingest('ing') AS run \gset
SELECT kb.wait(:run, 30);
SELECT count(*) FROM (SELECT chunk_id FROM before EXCEPT SELECT chunk_id FROM kb.chunks) s;

-- replace: all is made again beside what is there; one commit switches.
SELECT kb.ingest('ing', 'replace') AS run \gset
SELECT kb.wait(:run, 30);
SELECT * FROM ing_runs;
SELECT kb_id, documents, ready, pending, failed, vectors = chunks FROM kb.status WHERE kb_id = 'ing';
SELECT count(*) FROM kb.query('ing', 'document number', 7);
-- The old build is swept.
CALL until($$SELECT count(*) = 1 FROM kb.builds b JOIN kb.knowledge_bases k USING (kb_no) WHERE k.id = 'ing'$$);
SELECT count(*) FROM kb.chunks c JOIN kb.knowledge_bases k USING (kb_no) JOIN kb.builds b USING (build_no) WHERE k.id = 'ing' AND b.state <> 'live';
-- Another embedder is always a replace.
SELECT kb.alter_knowledge_base('ing', embedder => 'ing_b', chunking => '{"size": 10, "overlap": 0}');
SELECT kb.ingest('ing') AS run \gset
SELECT kb.wait(:run, 30);
SELECT * FROM ing_runs;
SELECT b.embedder, b.dimension, b.state FROM kb.builds b JOIN kb.knowledge_bases k USING (kb_no) WHERE k.id = 'ing' AND b.state = 'live';
SELECT count(*) FROM kb.query('ing', 'document number', 7);
SELECT count(*) FROM kb.query_vector('ing', array_fill(0.1, ARRAY[48])::vector, 7);
-- A second one while the first is under way is refused, in the same transaction too.
BEGIN;
SELECT kb.ingest('ing', 'replace') IS NOT NULL;
SELECT try($$SELECT kb.ingest('ing', 'replace')$$) ~ '^55000: knowledge base "ing" is being replaced by run \d+\nhint: Wait for it with kb.wait.$';
ROLLBACK;
-- Rolled back means nothing happened.
SELECT count(*) FROM kb.runs r JOIN kb.knowledge_bases k USING (kb_no) WHERE k.id = 'ing' AND r.state <> 'done';

-- Documents put meanwhile are in the new build.
BEGIN;
SELECT kb.ingest('ing', 'replace') IS NOT NULL;
SELECT kb.put_document('ing', 'late', 'A late document about penguins.');
COMMIT;
SELECT kb.put_document('ing', 'later', 'A later document about walruses.');
SELECT kb.wait('ing', 30);
SELECT external_id FROM kb.query('ing', 'a document about penguins', 1);
SELECT external_id FROM kb.query('ing', 'a document about walruses', 1);
SELECT * FROM ing_runs;

-- Only what changed is embedded again: an edit keeps the other chunks.
SELECT kb.create_knowledge_base('ing_edit', 'hash', chunking => '{"size": 8, "overlap": 0}');
SELECT kb.put_document('ing_edit', 'd', (SELECT string_agg('Paragraph number ' || i || ' stands here.', E'\n\n') FROM generate_series(1, 100) i));
SELECT kb.wait('ing_edit', 30);
CREATE TEMP TABLE edit_before AS SELECT chunk_id, c.xmin::text AS version FROM kb.chunks c JOIN kb.knowledge_bases k USING (kb_no) WHERE k.id = 'ing_edit';
SELECT kb.put_document('ing_edit', 'd', (SELECT string_agg(CASE i WHEN 50 THEN 'This one is another now.' ELSE 'Paragraph number ' || i || ' stands here.' END, E'\n\n') FROM generate_series(1, 100) i));
SELECT kb.wait('ing_edit', 30);
SELECT count(*) AS chunks, count(b.chunk_id) AS kept FROM kb.chunks c JOIN kb.knowledge_bases k USING (kb_no) LEFT JOIN edit_before b USING (chunk_id) WHERE k.id = 'ing_edit';
SELECT count(*), min(ordinal), max(ordinal), count(DISTINCT ordinal) FROM kb.chunks c JOIN kb.knowledge_bases k USING (kb_no) WHERE k.id = 'ing_edit';

-- Failures: listed with the reason, retried, and no harm to other documents.
SELECT kb.create_knowledge_base('ing_fail', 'ing_a', chunking => '{"strategy": "none"}');
SELECT kb.put_document('ing_fail', 'good', 'A short text.'), kb.put_document('ing_fail', 'bad', repeat('word ', 51)), kb.put_document('ing_fail', 'worse', repeat('more ', 60));
SELECT kb.wait('ing_fail', 30);
SELECT kb_id, tenant_id, external_id, error, sqlstate, attempts, failed_at <= now() AS past FROM kb.failures ORDER BY 1, 3;
SELECT documents, ready, pending, failed, chunks, vectors, eta FROM kb.status WHERE kb_id = 'ing_fail';
SELECT external_id FROM kb.query('ing_fail', 'word more short text') ORDER BY 1;
SELECT kb.retry('ing_fail', 'bad'), kb.retry('ing_fail', 'good'), kb.retry('ing_fail', 'nobody');
SELECT kb.wait('ing_fail', 30);
SELECT external_id FROM kb.failures ORDER BY 1;
SELECT kb.ingest('ing_fail') AS run \gset
SELECT kb.wait(:run, 30);
SELECT r.state, scanned, added, updated, skipped, failed FROM kb.runs r WHERE run_no = :run;
-- A failed document that is put again is tried again; so is one whose settings were corrected.
SELECT kb.put_document('ing_fail', 'bad', 'Short now.');
SELECT kb.wait('ing_fail', 30);
SELECT external_id FROM kb.failures;
SELECT kb.alter_knowledge_base('ing_fail', chunking => '{"size": 20, "overlap": 0}');
SELECT kb.retry('ing_fail');
SELECT kb.wait('ing_fail', 30);
SELECT kb.ingest('ing_fail') AS run \gset
SELECT kb.wait(:run, 30);
SELECT count(*) FROM kb.failures;
SELECT documents, ready, failed FROM kb.status WHERE kb_id = 'ing_fail';

-- A replacing run in which documents fail changes nothing of what is searched.
SELECT kb.alter_knowledge_base('ing_fail', chunking => '{"strategy": "none"}');
SELECT kb.ingest('ing_fail', 'replace') AS run \gset
SELECT regexp_replace(try(format('SELECT kb.wait(%s, 30)', :run)), 'run \d+', 'run N');
SELECT state, scanned, failed, error FROM kb.runs WHERE run_no = :run;
SELECT external_id FROM kb.query('ing_fail', 'more and more', 1);

-- kb.wait.
SELECT try($$SELECT kb.wait('ing_none')$$);
SELECT try($$SELECT kb.wait(1234567890)$$);
SELECT try($$SELECT kb.wait('ing', -1)$$);
SELECT try($$SELECT kb.wait('ing', 'NaN')$$);
SELECT try($$SELECT kb.wait('ing', 'Infinity')$$);
SELECT try($$SELECT kb.wait('ing', 0)$$);
-- It does not wait for what its own transaction has not committed: that would be for ever.
BEGIN;
SELECT kb.put_document('ing', 'mine', 'not committed');
SELECT try($$SELECT kb.wait('ing', 30)$$);
SELECT try($$SELECT kb.wait('ing_edit', 30)$$);
ROLLBACK;
SELECT try($$SELECT kb.wait('ing', 30)$$);
BEGIN;
SELECT kb.ingest('ing') AS run \gset
SELECT regexp_replace(try(format('SELECT kb.wait(%s, 30)', :run)), '\d+ waits', 'N waits');
COMMIT;
SELECT kb.wait(:run, 30);
-- What was put in a savepoint that was rolled back is not there any more.
BEGIN;
SAVEPOINT s;
SELECT kb.put_document('ing', 'mine', 'not committed');
ROLLBACK TO s;
SELECT try($$SELECT kb.wait('ing', 30)$$);
COMMIT;
-- A timeout, while a real model works; and a drop in the middle of that work.
SELECT kb.create_knowledge_base('ing_wait', 'minilm');
SELECT kb.put_document('ing_wait', 'd', (SELECT string_agg('word' || i, ' ') FROM generate_series(1, 10000) i));
\set VERBOSITY sqlstate
SELECT kb.wait('ing_wait', 0.05);
\set VERBOSITY default
SELECT kb.wait('ing_wait', 0);
SELECT kb_id, documents, pending FROM kb.status WHERE kb_id = 'ing_wait';
SELECT kb.drop_knowledge_base('ing_wait');
SELECT count(*) FROM kb.documents d JOIN kb.knowledge_bases k USING (kb_no) WHERE k.id = 'ing_wait';

-- Errors.
SELECT try($$SELECT kb.ingest('ing_none')$$);
SELECT try($$SELECT kb.ingest('ing', 'append')$$);
SELECT try($$SELECT kb.retry('ing_none')$$);
-- A knowledge base without documents.
SELECT kb.create_knowledge_base('ing_empty', 'hash');
SELECT kb.ingest('ing_empty') AS run \gset
SELECT kb.wait(:run, 30);
SELECT state, scanned FROM kb.runs WHERE run_no = :run;
SELECT kb.ingest('ing_empty', 'replace') AS run \gset
SELECT kb.wait(:run, 30);
SELECT state, scanned FROM kb.runs WHERE run_no = :run;

DROP VIEW ing_runs;
SELECT kb.drop_knowledge_base(id) FROM kb.knowledge_bases WHERE id ~ '^ing';
SELECT kb.drop_embedder('ing_a'), kb.drop_embedder('ing_b');
-- Runs go with their knowledge base.
SELECT count(*) FROM kb.runs;
