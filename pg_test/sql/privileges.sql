-- Who may do what: reader, writer, admin, and somebody without a role of kb.
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
CREATE ROLE kbt_nobody; CREATE ROLE kbt_reader IN ROLE kb_reader; CREATE ROLE kbt_writer IN ROLE kb_writer; CREATE ROLE kbt_admin IN ROLE kb_admin;
RESET client_min_messages;
SELECT kb.create_knowledge_base('prv', 'hash');
SELECT kb.put_document('prv', 'd', 'A document to read.');
SELECT kb.wait('prv', 30);
GRANT EXECUTE ON FUNCTION try(text) TO PUBLIC;

-- Functions: f may not, t may.
SELECT p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')',
       has_function_privilege('kbt_nobody', p.oid, 'EXECUTE') AS nobody, has_function_privilege('kbt_reader', p.oid, 'EXECUTE') AS reader,
       has_function_privilege('kbt_writer', p.oid, 'EXECUTE') AS writer, has_function_privilege('kbt_admin', p.oid, 'EXECUTE') AS admin
FROM pg_proc p WHERE p.pronamespace = 'kb'::regnamespace ORDER BY p.proname, pg_get_function_identity_arguments(p.oid);
-- Tables and views: what reader, writer and admin may do.
SELECT c.relname, r.role, (SELECT string_agg(x, ' ' ORDER BY x) FROM unnest('{SELECT,INSERT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER}'::text[]) x
                           WHERE has_table_privilege(r.role, c.oid, x)) AS may
FROM pg_class c, (VALUES (1, 'kbt_nobody'), (2, 'kbt_reader'), (3, 'kbt_writer'), (4, 'kbt_admin')) r (n, role)
WHERE c.relnamespace = 'kb'::regnamespace AND c.relkind IN ('r', 'v') AND c.relname !~ '^vectors_\d+$' ORDER BY 1, r.n;
-- The knowledge base's own vector table is readable, and only that.
SELECT r.role, (SELECT string_agg(x, ' ' ORDER BY x) FROM unnest('{SELECT,INSERT,UPDATE,DELETE,TRUNCATE}'::text[]) x
                WHERE has_table_privilege(r.role, 'kb.' || b.table_name, x)) AS may
FROM kb.builds b JOIN kb.knowledge_bases k USING (kb_no), (VALUES (1, 'kbt_nobody'), (2, 'kbt_reader'), (3, 'kbt_writer'), (4, 'kbt_admin')) r (n, role)
WHERE k.id = 'prv' ORDER BY r.n;

SET ROLE kbt_nobody;
SELECT try($$SELECT kb.query('prv', 'document')$$);
SELECT try($$SELECT count(*) FROM kb.documents$$);
SET ROLE kbt_reader;
SELECT content FROM kb.query('prv', 'document', 1);
SELECT content FROM kb.query_vector('prv', (SELECT v FROM kb.embed('hash', '{document}', 'query') v), 1);
SELECT kb.wait('prv', 30);
SELECT kb_id, documents, vectors FROM kb.status WHERE kb_id = 'prv';
SELECT count(*) FROM kb.failures WHERE kb_id = 'prv';
SELECT count(*) FROM kb.chunk('a b c', '{"size": 2, "overlap": 0}', 'hash');
SELECT kb.count_tokens('a b c', 'hash');
SELECT ok FROM kb.check_embedder('hash');
SELECT component FROM kb.health() ORDER BY 1;
SELECT try($$SELECT kb.put_document('prv', 'x', 'y')$$);
SELECT try($$SELECT kb.delete_document('prv', 'd')$$);
SELECT try($$SELECT kb.create_knowledge_base('prv_x', 'hash')$$);
SELECT try($$SELECT kb.ingest('prv')$$);
SELECT try($$DELETE FROM kb.documents$$);
SELECT left(try($$SELECT current_setting('kb.model_dir')$$), 5);
SELECT try($$SELECT set_config('kb.max_document_size', '1GB', false)$$);
-- No message tells where on the server the models are, nor does health.
SELECT count(*) FROM kb.health() WHERE detail LIKE '%/%' OR hint LIKE '%/%';
SET ROLE kbt_writer;
SELECT kb.put_document('prv', 'w', 'Written by a writer.');
SELECT kb.wait('prv', 30);
SELECT external_id FROM kb.query('prv', 'written by a writer', 1);
SELECT kb.delete_document('prv', 'w');
SELECT try($$SELECT kb.create_knowledge_base('prv_w', 'hash')$$);
SELECT try($$SELECT kb.alter_knowledge_base('prv_w', description => 'x')$$);
SELECT try($$SELECT kb.drop_knowledge_base('prv_w')$$);
SELECT * FROM kb.put_documents('prv', ARRAY['{"external_id": "w1", "content": "one"}', '{"external_id": "w2", "content": "two"}']::jsonb[]);
SELECT kb.ingest('prv', 'replace') IS NOT NULL;
SELECT kb.wait('prv', 30);
SELECT kb.retry('prv');
SELECT * FROM kb.delete_documents('prv', '{w1,w2}');
SELECT try($$SELECT kb.create_embedder('prv_e', 'hash')$$);
SELECT try($$SELECT kb.alter_embedder('minilm', dimension => 1)$$);
SELECT try($$SELECT kb.create_vector_db('prv_v')$$);
SELECT try($$UPDATE kb.embedders SET provider = 'local', model = '../../etc'$$);
SELECT try($$INSERT INTO kb.embedders (id, provider, model, dimension, fingerprint) VALUES ('x', 'hash', 'hash', 1, 1)$$);
SELECT try($$UPDATE kb.builds SET table_name = 'documents'$$);
SELECT try($$UPDATE kb.knowledge_bases SET embedder = 'static'$$);
SELECT try($$DELETE FROM kb.chunks$$);
SELECT try($$CREATE TABLE kb.mine ()$$);
SET ROLE kbt_admin;
SELECT try($$SELECT kb.create_embedder('prv_e', 'hash', dimension => 16)$$);
SELECT try($$SELECT kb.create_vector_db('prv_v', 'memory', 16)$$);
SELECT try($$SELECT kb.create_knowledge_base('prv_a', 'prv_e', 'prv_v')$$);
SELECT kb.put_document('prv_a', 'd', 'By an admin.');
SELECT kb.wait('prv_a', 30);
SELECT content FROM kb.query('prv_a', 'admin');
SELECT try($$SELECT kb.alter_embedder('prv_e', config => '{"batch_size": 5}')$$);
SELECT kb.drop_knowledge_base('prv_a');
SELECT kb.drop_vector_db('prv_v'), kb.drop_embedder('prv_e');
SELECT try($$SELECT kb.create_embedder('prv_e', 'local', 'no_such_model')$$) ~ '/' AS tells_a_path;
SELECT try($$SELECT set_config('kb.model_dir', '/', false)$$);
RESET ROLE;
SELECT kb.drop_knowledge_base('prv');
DROP ROLE kbt_nobody, kbt_reader, kbt_writer, kbt_admin;
