-- Tenants: one sees nothing of another, by tables, views, functions or errors.
\pset format unaligned
\pset tuples_only on
CREATE ROLE kbt_tenant IN ROLE kb_writer; CREATE ROLE kbt_shared IN ROLE kb_admin;
GRANT EXECUTE ON FUNCTION try(text) TO PUBLIC;
SELECT kb.create_embedder('ten_e', 'hash', dimension => 32, config => '{"max_input_tokens": 20}');
SELECT kb.create_vector_db('ten_v', 'pgvector', 32);
SELECT table_name FROM kb.vector_dbs WHERE id = 'ten_v' \gset
SET ROLE kbt_tenant;
SELECT kb.current_tenant() = '', kb.visible_tenants();

-- B: a shared vector table, a failing document, a run.
SET kb.tenant = 'b';
SELECT kb.create_knowledge_base('ten', 'ten_e', 'ten_v', chunking => '{"strategy": "none"}'), kb.create_knowledge_base('ten_own_b', 'ten_e');
SELECT kb.put_document('ten', 'doc', 'The secret of tenant b is blue.'), kb.put_document('ten', 'same', 'The same text in both.'),
       kb.put_document('ten', 'fails', repeat('secret ', 30)), kb.put_document('ten_own_b', 'doc', 'Another secret.');
SELECT kb.wait('ten', 30), kb.wait('ten_own_b', 30);
SELECT kb.ingest('ten') AS run_b \gset
SELECT kb.wait(:run_b, 30);
SELECT kb_no AS kb_b FROM kb.knowledge_bases WHERE id = 'ten' \gset
SELECT document_id AS doc_b FROM kb.documents WHERE external_id = 'doc' AND kb_no = :kb_b \gset

-- A: the same names are another tenant's.
SET kb.tenant = 'a';
SELECT try($$SELECT kb.query('ten', 'secret')$$);
SELECT try($$SELECT kb.query_vector('ten', array_fill(0.1, ARRAY[32])::vector)$$);
SELECT try($$SELECT kb.put_document('ten', 'doc', 'x')$$);
SELECT try($$SELECT kb.delete_document('ten', 'doc')$$);
SELECT try($$SELECT kb.delete_documents('ten', '{doc}')$$);
SELECT try($$SELECT kb.alter_knowledge_base('ten', description => 'x')$$);
SELECT try($$SELECT kb.drop_knowledge_base('ten')$$);
SELECT try($$SELECT kb.ingest('ten')$$);
SELECT try($$SELECT kb.retry('ten')$$);
SELECT try($$SELECT kb.wait('ten', 1)$$);
SELECT regexp_replace(try(format('SELECT kb.wait(%s, 1)', :run_b)), '\d+" does', 'N" does');
SELECT kb.create_knowledge_base('ten', 'ten_e', 'ten_v', chunking => '{"strategy": "none"}');
SELECT kb.put_document('ten', 'doc', 'The secret of tenant a is red.'), kb.put_document('ten', 'same', 'The same text in both.');
SELECT kb.wait('ten', 30);
SELECT kb_no AS kb_a FROM kb.knowledge_bases WHERE id = 'ten' \gset
SELECT external_id, content, locator FROM kb.query('ten', 'the secret of tenant', 10) ORDER BY 1;
SELECT external_id, locator FROM kb.query('ten', 'The same text in both.', 1);
SELECT kb_id, tenant_id, documents, failed, chunks, vectors FROM kb.status;
SELECT count(*) FROM kb.failures;
SELECT tenant_id, count(*) FROM kb.documents GROUP BY 1;
SELECT tenant_id, count(*) FROM kb.chunks GROUP BY 1;
SELECT tenant_id, count(*) FROM kb.knowledge_bases GROUP BY 1;
SELECT tenant_id, count(*) FROM kb.builds GROUP BY 1;
SELECT count(*) FROM kb.runs;
SELECT tenant_id, count(*) FROM kb.:"table_name" GROUP BY 1;
SELECT count(*) FROM kb.documents WHERE document_id = :doc_b;
SELECT count(*) FROM kb.chunks WHERE document_id = :doc_b;
SELECT count(*) FROM pg_stats WHERE schemaname = 'kb' AND tablename IN ('documents', 'chunks', 'knowledge_bases', 'jobs', 'runs', 'builds', :'table_name');
-- A condition of one's own sees no row that the policy hides.
CREATE TEMP TABLE seen (content text);
CREATE FUNCTION pg_temp.leak(t text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS $$ BEGIN INSERT INTO seen VALUES (t); RETURN true; END $$;
SELECT count(*) FROM kb.documents WHERE pg_temp.leak(content);
SELECT content FROM seen WHERE content LIKE '%blue%' OR content LIKE '%Another%';
-- Writing into another's knowledge base by hand: refused, and the refusal is the same whether a thing is there or not.
SELECT split_part(try(format($$INSERT INTO kb.documents (kb_no, kb_id, tenant_id, external_id, content_type, content, content_hash) VALUES (%s, 'ten', 'b', 'new', 'text/plain', 'x', 'x')$$, :kb_b)), E'\n', 1);
SELECT split_part(try(format($$INSERT INTO kb.documents (kb_no, kb_id, tenant_id, external_id, content_type, content, content_hash) VALUES (%s, 'ten', 'a', 'doc', 'text/plain', 'x', 'x')$$, :kb_b)), ':', 1)
     = split_part(try(format($$INSERT INTO kb.documents (kb_no, kb_id, tenant_id, external_id, content_type, content, content_hash) VALUES (%s, 'ten', 'a', 'guess', 'text/plain', 'x', 'x')$$, :kb_b)), ':', 1) AS tells_nothing_of_documents;
SELECT split_part(try(format($$INSERT INTO kb.jobs (kb_no, tenant_id, subject) VALUES (%s, 'a', 'doc')$$, :kb_b)), ':', 1)
     = split_part(try(format($$INSERT INTO kb.jobs (kb_no, tenant_id, subject) VALUES (%s, 'a', 'guess')$$, :kb_b)), ':', 1) AS tells_nothing_of_jobs;
-- Nor does a job made by hand block the other tenant's own.
SELECT try(format($$INSERT INTO kb.jobs (kb_no, tenant_id, subject, next_attempt_at) VALUES (%s, 'a', 'same', now() + interval '1 day')$$, :kb_b)) ~ '^ok' AS makes_work_for_another;
SELECT try($$UPDATE kb.documents SET tenant_id = 'b'$$) ~ '^42501';
SELECT try($$UPDATE kb.documents SET title = 'taken' WHERE external_id = 'doc'$$) ~ '^(ok|42501)';
SELECT try($$DELETE FROM kb.documents WHERE external_id = 'fails'$$) ~ '^(ok|42501)';
-- A statement prepared under one tenant answers for the tenant that executes it.
PREPARE asked AS SELECT external_id, content FROM kb.query('ten', 'the secret of tenant', 1);
EXECUTE asked;
SET kb.tenant = 'b';
EXECUTE asked;
SELECT external_id, title FROM kb.documents WHERE kb_no = :kb_b ORDER BY 1;
SELECT try($$SELECT kb.put_document('ten', 'same', 'The same text in b alone.')$$);
SELECT kb.wait('ten', 30);
SELECT kb_id, tenant_id, documents, failed, chunks, vectors FROM kb.status ORDER BY 1;
SELECT external_id FROM kb.failures;
SELECT count(*) FROM kb.runs;
-- Unset is a tenant of its own, not all.
RESET kb.tenant;
SELECT count(*) FROM kb.documents;
SELECT try($$SELECT kb.query('ten', 'secret')$$);
-- Names that try to see more.
SET kb.tenant = 'a'' OR true --';
SELECT count(*) FROM kb.documents;
SET kb.tenant = '%';
SELECT count(*) FROM kb.documents;

-- Tenant shared: read by all, written by members of kb_admin. A knowledge base of one's own comes first.
SET kb.tenant = 'shared';
SELECT try($$SELECT kb.create_knowledge_base('ten_shared', 'ten_e')$$);
SELECT try($$SELECT count(*) FROM kb.documents$$);
SET ROLE kbt_shared;
SELECT kb.create_knowledge_base('ten_shared', 'ten_e'), kb.create_knowledge_base('ten', 'ten_e');
SELECT kb.put_document('ten_shared', 'doc', 'For all to read.'), kb.put_document('ten', 'doc', 'The shared one.');
SELECT kb.wait('ten_shared', 30), kb.wait('ten', 30);
SET ROLE kbt_tenant;
SET kb.tenant = 'a';
SELECT content FROM kb.query('ten_shared', 'read', 1);
SELECT content FROM kb.query('ten', 'secret', 1);
SELECT kb.wait('ten_shared', 1);
SELECT try($$SELECT kb.put_document('ten_shared', 'mine', 'x')$$);
SELECT try($$SELECT kb.delete_document('ten_shared', 'doc')$$);
SELECT try($$SELECT kb.drop_knowledge_base('ten_shared')$$);
SELECT try($$SELECT kb.ingest('ten_shared')$$);
SELECT try($$WITH gone AS (DELETE FROM kb.documents WHERE tenant_id = 'shared' RETURNING 1) SELECT count(*) FROM gone$$) ~ '^(ok: 0|42501)';
SET kb.tenant = 'c';
SELECT content FROM kb.query('ten', 'anything', 1);

-- A drop touches nothing of another tenant.
SET kb.tenant = 'a';
SELECT kb.drop_knowledge_base('ten');
SET kb.tenant = 'b';
SELECT content FROM kb.query('ten', 'the secret of tenant', 1);
SELECT kb.drop_knowledge_base('ten'), kb.drop_knowledge_base('ten_own_b');
SET ROLE kbt_shared;
SET kb.tenant = 'shared';
SELECT kb.drop_knowledge_base('ten'), kb.drop_knowledge_base('ten_shared');
RESET kb.tenant;
SET ROLE kbt_tenant;
DROP TABLE seen;
DROP FUNCTION pg_temp.leak;
RESET ROLE;
SELECT count(*) FROM kb.knowledge_bases;
SELECT kb.drop_vector_db('ten_v'), kb.drop_embedder('ten_e');
DROP ROLE kbt_tenant, kbt_shared;
