-- JSON that kb cannot read is refused under the argument's name; what it only keeps is kept as it is, digit by digit.
\pset format unaligned
\pset tuples_only on
CREATE FUNCTION pg_temp.nested(levels integer) RETURNS text IMMUTABLE LANGUAGE sql AS
    $$SELECT '{"a": ' || repeat('[', levels - 1) || repeat(']', levels - 1) || '}'$$;
SELECT kb.create_embedder('js', 'hash', dimension => 8);
SELECT kb.create_knowledge_base('js', 'js', metadata => '{"n": 12345678901234567890123.50}');
CREATE TEMP TABLE call (no integer GENERATED ALWAYS AS IDENTITY, statement text);
INSERT INTO call (statement) VALUES
    ($$SELECT kb.create_embedder('js_x', 'hash', config => %L)$$),
    ($$SELECT kb.alter_embedder('js', config => %L)$$),
    ($$SELECT kb._fingerprint('hash', 'hash', 8, %L)$$),
    ($$SELECT kb.create_vector_db('js_x', config => %L)$$),
    ($$SELECT kb.create_knowledge_base('js_x', 'js', chunking => %L)$$),
    ($$SELECT kb.create_knowledge_base('js_x', 'js', preprocess => %L)$$),
    ($$SELECT kb.create_knowledge_base('js_x', 'js', retrieval => %L)$$),
    ($$SELECT kb.alter_knowledge_base('js', chunking => %L)$$),
    ($$SELECT kb.alter_knowledge_base('js', preprocess => %L)$$),
    ($$SELECT kb.alter_knowledge_base('js', retrieval => %L)$$),
    ($$SELECT * FROM kb.chunk('a text', %L)$$),
    ($$SELECT * FROM kb.put_documents('js', ARRAY['{"external_id": "x", "content": "x"}'::jsonb || %L])$$),
    ($$SELECT * FROM kb.query('js', 'text', options => %L)$$),
    ($$SELECT * FROM kb.query_vector('js', '[1,0,0,0,0,0,0,0]', options => %L)$$),
    -- These keep or compare what they are given.
    ($$SELECT kb.create_knowledge_base('js_x', 'js', metadata => %L)$$),
    ($$SELECT kb.alter_knowledge_base('js', metadata => %L)$$),
    ($$SELECT kb.put_document('js', 'x', 'x', %L)$$),
    ($$SELECT kb.put_document('js', 'x', 'x'::bytea, %L)$$),
    ($$SELECT * FROM kb.put_documents('js', ARRAY[jsonb_build_object('external_id', 'x', 'content', 'x', 'metadata', %L::jsonb)])$$),
    ($$SELECT * FROM kb.query('js', 'text', filter => %L)$$),
    ($$SELECT * FROM kb.query_vector('js', '[1,0,0,0,0,0,0,0]', filter => %L)$$);
-- Too deep.
SELECT no, replace(try(format(statement, pg_temp.nested(101))), E'\n', ' ') FROM call ORDER BY no;
-- As deep as is allowed: kept, or an unknown key. None is an internal error.
SELECT no, left(replace(try(format(statement, pg_temp.nested(100))), E'\n', ' '), 72) FROM call ORDER BY no;
SELECT count(*) FROM call WHERE try(format(statement, pg_temp.nested(1000))) !~ '^22023: .*nested';
-- Numbers beyond a double, or of more digits.
SELECT no, replace(try(format(statement, '{"a": 1e400}')), E'\n', ' ') FROM call WHERE no < 15 ORDER BY no;
SELECT count(*) FROM call WHERE no < 15 AND try(format(statement, '{"a": 12345678901234567890123}')) !~ '^22023: .*number';
-- What is kept stays as it is, and is found by that.
SELECT kb.drop_knowledge_base('js_x');
SELECT kb.alter_knowledge_base('js', metadata => '{"n": 12345678901234567890123.50, "e": 1e400}');
SELECT kb.alter_knowledge_base('js', description => 'changed');
SELECT metadata ->> 'n', metadata -> 'e' = '1e400' FROM kb.knowledge_bases WHERE id = 'js';
SELECT kb.put_document('js', 'a', 'a text', '{"n": 12345678901234567890123, "price": 1.50, "e": 1e400}');
SELECT * FROM kb.put_documents('js', ARRAY['{"metadata": {"n": 12345678901234567890124, "o": {"n": 1.500}}, "external_id": "b", "content": "b text"}']::jsonb[]);
SELECT kb.wait('js', 30);
SELECT external_id, metadata ->> 'n', metadata ->> 'price', metadata -> 'o', metadata -> 'e' = '1e400' FROM kb.query('js', 'text', 9)
WHERE external_id <> 'x' ORDER BY 1;
SELECT external_id FROM kb.query('js', 'text', 9, filter => '{"n": 12345678901234567890124}');
SELECT external_id FROM kb.query('js', 'text', 9, filter => '{"n": 12345678901234567890123, "e": 1e400}');
SELECT external_id FROM kb.query('js', 'text', 9, filter => '{"o": {"n": 1.5}}');
SELECT count(*) FROM kb.query('js', 'text', 9, filter => '{"n": 12345678901234567890125}');
-- A metadata that is NULL, null or no object.
SELECT status FROM kb.put_documents('js', ARRAY['{"external_id": "c", "content": "c", "metadata": null}']::jsonb[]);
SELECT try($$SELECT kb.put_documents('js', ARRAY['{"external_id": "c", "content": "c", "metadata": [1]}', '[1]']::jsonb[])$$);
SELECT try($$SELECT kb.put_documents('js', ARRAY['[{"metadata": {}}]']::jsonb[])$$);
SELECT kb.drop_knowledge_base('js');
SELECT kb.drop_embedder('js');
