-- kb.status, kb.failures and kb.runs from outside.
SELECT kb.create_knowledge_base('st_a', 'hash'), kb.create_knowledge_base('st_b', 'hash');
SELECT * FROM kb.status WHERE kb_id LIKE 'st%' ORDER BY kb_id;
BEGIN;
SELECT kb.put_document('st_a', '1', 'one'), kb.put_document('st_a', '2', 'two');
SELECT kb_id, documents, ready, pending, failed, chunks, vectors FROM kb.status WHERE kb_id LIKE 'st%' ORDER BY kb_id;
SELECT subject, attempts, error, leased_until FROM kb.jobs ORDER BY subject;
-- Edits while waiting are one job.
SELECT kb.put_document('st_a', '1', 'one more'), kb.put_document('st_a', '1', 'one more time');
SELECT subject, generation > (SELECT min(generation) FROM kb.jobs) AS later FROM kb.jobs ORDER BY subject;
COMMIT;
SELECT kb.wait('st_a', 30);
SELECT kb_id, documents, ready, pending, failed, chunks, vectors, rate > 0 AS moved, eta FROM kb.status WHERE kb_id LIKE 'st%' ORDER BY kb_id;
SELECT count(*) FROM kb.jobs;
SELECT content FROM kb.query('st_a', 'one more', 1);
SELECT kb.delete_document('st_a', '1');
SELECT kb_id, documents, ready, chunks, vectors FROM kb.status WHERE kb_id = 'st_a';
SELECT count(*) FROM kb.failures;
SELECT kb.drop_knowledge_base('st_a'), kb.drop_knowledge_base('st_b');
