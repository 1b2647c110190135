-- What an installation of 0.1.0 holds, as its own library wrote it: a knowledge base with a document that is ready, one
-- that waits, and their jobs, runs, usage and vectors. Written by hand: the library is a later one.
INSERT INTO kb.embedders (id, provider, model, dimension, fingerprint)
    SELECT 'tiny', provider, model, 384, 17 FROM kb.embedders WHERE id = 'hash';
INSERT INTO kb.knowledge_bases (tenant_id, id, embedder, chunking, preprocess, retrieval, etag) VALUES ('', 'handbook', 'tiny',
    '{"strategy": "recursive", "size": 800, "overlap": 120, "unit": "tokens", "tokenizer": null}',
    '{"dedupe": true, "remove_html": true, "language": "english"}',
    '{"top_k": 5, "min_score": 0.0, "max_tokens": null, "ef_search": null, "on_error": "error"}', 'x');
INSERT INTO kb.runs (kb_no, tenant_id, strategy, state, scanned, finished_at)
    SELECT kb_no, tenant_id, 'upsert', 'done', 1, now() FROM kb.knowledge_bases;
INSERT INTO kb.builds (build_no, kb_no, tenant_id, state, embedder, fingerprint, dimension, chunking, preprocess, table_name,
        owns_table, type, metric, element, config)
    SELECT nextval('kb.build_no_seq'), kb_no, k.tenant_id, 'live', e.id, e.fingerprint, e.dimension, chunking, preprocess,
           'vectors_1', true, 'pgvector', 'cosine', 'vector',
           '{"table": null, "m": 16, "ef_construction": 64, "min_rows": 1000, "element": "vector"}'
    FROM kb.knowledge_bases k JOIN kb.embedders e ON e.id = k.embedder;
CREATE TABLE kb.vectors_1 (
    chunk_id uuid NOT NULL,
    build_no bigint NOT NULL,
    kb_no bigint NOT NULL,
    tenant_id text NOT NULL,
    fingerprint bigint NOT NULL,
    embedding vector(384) NOT NULL,
    PRIMARY KEY (build_no, chunk_id),
    FOREIGN KEY (build_no, chunk_id) REFERENCES kb.chunks (build_no, chunk_id) ON DELETE CASCADE);
ALTER TABLE kb.vectors_1 ENABLE ROW LEVEL SECURITY;
ALTER TABLE kb.vectors_1 FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_read ON kb.vectors_1 FOR SELECT USING (tenant_id = ANY ((SELECT kb.visible_tenants())::text[]));
CREATE POLICY tenant_write ON kb.vectors_1 USING (tenant_id = (SELECT kb.current_tenant()))
    WITH CHECK (tenant_id = (SELECT kb.current_tenant()));
GRANT SELECT ON kb.vectors_1 TO kb_vectors;
INSERT INTO kb.documents (kb_no, kb_id, tenant_id, external_id, content_type, content, content_hash, indexed_hash, status,
        chunk_count, token_count, processed_at)
    SELECT kb_no, id, tenant_id, 'ready', 'text/plain', 'Everybody has thirty days of annual leave.', 'a', 'a', 'ready', 1, 8, now()
    FROM kb.knowledge_bases;
INSERT INTO kb.chunks (chunk_id, build_no, document_id, kb_no, tenant_id, ordinal, content, content_hash, token_count, start_char,
        end_char, tsv)
    SELECT gen_random_uuid(), build_no, document_id, kb_no, d.tenant_id, 0, content, 'a', 8, 0, length(content),
           to_tsvector('english', content)
    FROM kb.documents d JOIN kb.builds b USING (kb_no);
INSERT INTO kb.vectors_1 (chunk_id, build_no, kb_no, tenant_id, fingerprint, embedding)
    SELECT chunk_id, build_no, kb_no, c.tenant_id, fingerprint, (SELECT kb.embed('tiny', ARRAY[c.content]))
    FROM kb.chunks c JOIN kb.builds b USING (build_no, kb_no);
INSERT INTO kb.documents (kb_no, kb_id, tenant_id, external_id, content_type, content, content_hash)
    SELECT kb_no, id, tenant_id, 'waits.html', 'text/html', '<h1>Travel</h1><p>Trains are paid for.</p>', 'b' FROM kb.knowledge_bases;
INSERT INTO kb.jobs (kb_no, tenant_id, kind, subject) SELECT kb_no, tenant_id, 'document', external_id
    FROM kb.documents WHERE status = 'pending';
INSERT INTO kb.usage (capability, endpoint, kb_no, kb_id, tenant_id, day, requests, texts, tokens, cost)
    SELECT 'embed', 'remote', kb_no, id, tenant_id, now(), 1, 1, 8, 0.000002 FROM kb.knowledge_bases;
