-- Vector databases: shared tables of vectors.
\pset format unaligned
\pset tuples_only on

SELECT try($$SELECT kb.create_vector_db('vdb_a', 'pgvector', 8)$$);
SELECT try($$SELECT kb.create_vector_db('vdb_mem', type => 'memory', dimension => 8, metric => 'l2')$$);
SELECT try($$SELECT kb.create_vector_db('vdb_half', 'pgvector', 2001, 'ip')$$);
SELECT try($$SELECT kb.create_vector_db('vdb_own', 'pgvector', 8, 'cosine', '{"table": "my_vectors", "m": 8, "ef_construction": 64, "min_rows": 10, "element": "halfvec"}')$$);
SELECT try($$SELECT kb.create_vector_db('Vdb "quoted"; DROP', 'pgvector', 8)$$);
SELECT try($$SELECT kb.create_vector_db('vdb_default')$$);
SELECT id, type, dimension, metric, config FROM kb.vector_dbs ORDER BY id COLLATE "C";
-- The tables: column types, logged or not, row-level security forced, tenant and fingerprint in every row.
SELECT v.id, c.relpersistence, c.relrowsecurity, c.relforcerowsecurity,
       (SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum)
        FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped)
FROM kb.vector_dbs v JOIN pg_class c ON c.relname = v.table_name AND c.relnamespace = 'kb'::regnamespace
ORDER BY v.id COLLATE "C";

-- Errors.
SELECT try($$SELECT kb.create_vector_db('vdb_a', 'pgvector', 8)$$);
SELECT try($$SELECT kb.create_vector_db('vdb_x', 'pgvector', 8, 'cosine', '{"table": "my_vectors"}')$$);
-- A table that somebody else made in the schema is not taken over.
SELECT try($$SELECT kb.create_vector_db('vdb_x', 'pgvector', 8, 'cosine', '{"table": "documents"}')$$);
SELECT try($$SELECT kb.create_vector_db('vdb_x', 'pgvector', 8, 'cosine', '{"table": "vectors_1"}')$$);
SELECT try($$SELECT kb.create_vector_db('vdb_x', 'pgvector', 8, 'cosine', '{"table": "x; DROP TABLE y"}')$$);
SELECT try($$SELECT kb.create_vector_db('vdb_x', 'qdrant', 8)$$);
SELECT try($$SELECT kb.create_vector_db('vdb_x', 'pinecone', 8)$$);
SELECT try($$SELECT kb.create_vector_db('vdb_x', 'pgvector', 0)$$);
SELECT try($$SELECT kb.create_vector_db('vdb_x', 'pgvector', -1)$$);
SELECT try($$SELECT kb.create_vector_db('vdb_x', 'pgvector', 4001)$$);
SELECT try($$SELECT kb.create_vector_db('vdb_x', 'pgvector', 2001, 'cosine', '{"element": "vector"}')$$);
SELECT try($$SELECT kb.create_vector_db('vdb_x', 'pgvector', 8, 'cosine', '{"m": 16, "ef_construction": 16}')$$);
SELECT try($$SELECT kb.create_vector_db('', 'faiss', 5000, 'manhattan', '{"M": 16, "min_rows": -1, "element": "bit", "table": "A"}')$$);
SELECT try($$SELECT kb.create_vector_db('vdb_x', 'pgvector', 8, 'cosine', '"text"')$$);
SELECT try($$SELECT kb.drop_vector_db('vdb_x')$$);

-- In use.
SELECT kb.create_embedder('vdb_emb', 'hash', dimension => 8);
SELECT kb.create_knowledge_base('vdb_kb', 'vdb_emb', 'vdb_mem');
SELECT try($$SELECT kb.drop_vector_db('vdb_mem')$$);
SELECT kb.drop_knowledge_base('vdb_kb');
SELECT kb.drop_embedder('vdb_emb');

-- A drop drops the table, too.
SELECT array_agg(table_name) AS made FROM kb.vector_dbs \gset
SELECT try(format('SELECT kb.drop_vector_db(%L)', id)) FROM kb.vector_dbs ORDER BY id COLLATE "C";
SELECT count(*) FROM pg_class WHERE relnamespace = 'kb'::regnamespace AND relname = ANY (:'made');
