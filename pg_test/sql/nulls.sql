-- NULL arguments: the default where that is NULL, else an error that names the argument.
\pset format unaligned
\pset tuples_only on
SELECT kb.create_knowledge_base('nul', 'hash', NULL, NULL, NULL, NULL, NULL, NULL);
-- NULL is the default.
SELECT kb.put_document('nul', 'd', 'Some text.', NULL, NULL, NULL, NULL);
SELECT kb.wait('nul', NULL::double precision);
SELECT count(*) FROM kb.query('nul', 'text', NULL, NULL, NULL, NULL);
SELECT count(*) FROM kb.query('nul', 'text', options => NULL);
SELECT kb.count_tokens('a b', NULL) > 0;
SELECT kb.retry('nul', NULL);
SELECT kb.alter_knowledge_base('nul', NULL, NULL, NULL, NULL, NULL, NULL);
SELECT count(*) FROM kb.chunk('a b', '{}', NULL);
-- Else an error says which argument.
CREATE FUNCTION null_case(argument text, statement text) RETURNS text LANGUAGE sql AS $$
    SELECT CASE WHEN r ~ ('^22004: ' || argument || ' must not be NULL') THEN 'fine' ELSE 'WRONG: ' || split_part(r, E'\n', 1) END FROM try(statement) r
$$;
SELECT s.statement, null_case(s.argument, s.statement) FROM (VALUES
('id', 'SELECT kb.create_knowledge_base(NULL)'),
('id', 'SELECT kb.alter_knowledge_base(NULL, description => ''x'')'),
('id', 'SELECT kb.drop_knowledge_base(NULL)'),
('kb_id', 'SELECT kb.ingest(NULL)'),
('strategy', 'SELECT kb.ingest(''nul'', NULL)'),
('kb_id', 'SELECT kb.put_document(NULL, ''d'', ''x'')'),
('external_id', 'SELECT kb.put_document(''nul'', NULL, ''x'')'),
('content', 'SELECT kb.put_document(''nul'', ''d'', NULL::text)'),
('bytes', 'SELECT kb.put_document(''nul'', ''d'', NULL::bytea)'),
('kb_id', 'SELECT kb.put_documents(NULL, ''{}'')'),
('documents', 'SELECT kb.put_documents(''nul'', NULL)'),
('kb_id', 'SELECT kb.delete_document(NULL, ''d'')'),
('external_id', 'SELECT kb.delete_document(''nul'', NULL)'),
('kb_id', 'SELECT kb.delete_documents(NULL, ''{d}'')'),
('external_ids', 'SELECT kb.delete_documents(''nul'', NULL)'),
('kb_id', 'SELECT kb.retry(NULL)'),
('id', 'SELECT kb.alter_conversation(NULL)'),
('id', 'SELECT kb.drop_conversation(NULL)'),
('conversation_id', 'SELECT kb.append_turn(NULL, ''user'', ''x'')'),
('role', 'SELECT kb.append_turn(''c'', NULL, ''x'')'),
('content', 'SELECT kb.append_turn(''c'', ''user'', NULL)'),
('id', 'SELECT kb.window(NULL)'),
('kb_id', 'SELECT kb.answer(NULL::text, ''x'', ''x'')'),
('kb_ids', 'SELECT kb.answer(NULL::text[], ''x'', ''x'')'),
('kb_id', 'SELECT kb.wait(NULL::text)'),
('run', 'SELECT kb.wait(NULL::bigint)'),
('kb_id', 'SELECT kb.query(NULL, ''x'')'),
('query', 'SELECT kb.query(''nul'', NULL)'),
('kb_id', 'SELECT kb.query_vector(NULL, ''[1]'')'),
('vector', 'SELECT kb.query_vector(''nul'', NULL)'),
('text', 'SELECT kb.chunk(NULL)'),
('chunking', 'SELECT kb.chunk(''x'', NULL)'),
('content_type', 'SELECT kb.chunk(''x'', ''{}'', ''hash'', NULL)'),
('embedder', 'SELECT kb.embed(NULL, ''{x}'')'),
('texts', 'SELECT kb.embed(''hash'', NULL)'),
('kind', 'SELECT kb.embed(''hash'', ''{x}'', NULL)'),
('text', 'SELECT kb.count_tokens(NULL)'),
('id', 'SELECT kb.check_embedder(NULL)'),
('id', 'SELECT kb.create_embedder(NULL, ''hash'')'),
('provider', 'SELECT kb.create_embedder(''nul_e'', NULL)'),
('id', 'SELECT kb.alter_embedder(NULL, dimension => 8)'),
('id', 'SELECT kb.drop_embedder(NULL)'),
('id', 'SELECT kb.create_vector_db(NULL)'),
('type', 'SELECT kb.create_vector_db(''nul_v'', NULL)'),
('dimension', 'SELECT kb.create_vector_db(''nul_v'', ''memory'', NULL)'),
('metric', 'SELECT kb.create_vector_db(''nul_v'', ''memory'', 8, NULL)'),
('config', 'SELECT kb.create_vector_db(''nul_v'', ''memory'', 8, ''l2'', NULL)'),
('name', 'SELECT kb.set_secret(NULL, ''x'')'),
('value', 'SELECT kb.set_secret(''x'', NULL)'),
('name', 'SELECT kb.drop_secret(NULL)'),
('kb_id', 'SELECT kb.estimate_ingest(NULL)'),
('id', 'SELECT kb.drop_vector_db(NULL)')) s (argument, statement);
SELECT count(*) FROM kb.documents WHERE external_id = 'd';
SELECT kb.drop_knowledge_base('nul');
DROP FUNCTION null_case;
