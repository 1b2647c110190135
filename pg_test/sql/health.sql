-- kb.health and kb.check_embedder: what is wrong and what to do.
\pset format unaligned
\pset tuples_only on
SELECT component, status FROM kb.health();
SELECT component, regexp_replace(detail, '\d+(\.\d+)*', 'N', 'g'), hint IS NOT NULL AS advice FROM kb.health() WHERE component IN ('pgvector', 'gateway', 'models');
SELECT bool_and(hint IS NULL OR length(hint) > 10) FROM kb.health();
-- Documents that wait without a worker would be reported; here one runs as soon as there is work.
SELECT kb.create_knowledge_base('hea', 'hash');
SELECT kb.put_document('hea', 'd', 'text');
SELECT kb.wait('hea', 30);
SELECT status, regexp_replace(detail, '\d+', 'N') FROM kb.health() WHERE component = 'worker';
-- A document that failed is reported until it is put again, retried or deleted.
SELECT kb.create_embedder('hea_e', 'hash', dimension => 8, config => '{"max_input_tokens": 5}');
SELECT kb.create_knowledge_base('hea_f', 'hea_e', chunking => '{"strategy": "none"}');
SELECT kb.put_document('hea_f', 'long', 'one two three four five six');
SELECT kb.wait('hea_f', 30);
SELECT status, detail, hint FROM kb.health() WHERE component IN ('documents', 'failures') ORDER BY component;
SELECT kb.put_document('hea_f', 'long', 'one two');
SELECT kb.wait('hea_f', 30);
SELECT status, detail, hint FROM kb.health() WHERE component = 'failures';
SELECT kb.drop_knowledge_base('hea_f'), kb.drop_embedder('hea_e');
-- Processes say who they are.
SELECT DISTINCT backend_type FROM pg_stat_activity WHERE backend_type ~ 'kb' ORDER BY 1;
SELECT kb.drop_knowledge_base('hea');
