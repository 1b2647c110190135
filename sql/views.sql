-- What happens: views under the caller's own row-level security.

-- Pinned, as in roles.sql.
SELECT pg_catalog.set_config('kb_install.search_path', pg_catalog.current_setting('search_path'), true),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

CREATE VIEW kb.status WITH (security_invoker = true) AS
SELECT k.id AS kb_id,
       k.tenant_id,
       d.documents, d.ready, d.pending, d.failed,
       coalesce(c.chunks, 0) AS chunks,
       coalesce(c.vectors, 0) AS vectors,
       coalesce(c.index_state[1] > 0, false) AS indexed,
       round(r.rate::numeric, 2) AS rate,
       CASE WHEN d.pending = 0 THEN interval '0'
            WHEN r.rate > 0 THEN make_interval(secs => ceil(d.pending / r.rate)) END AS eta,
       coalesce(c.index_state[1], 0) AS segments,
       coalesce(c.index_state[2], 0) AS unindexed,
       c.building
FROM kb.knowledge_bases k
CROSS JOIN LATERAL (
    SELECT count(*) AS documents,
           count(*) FILTER (WHERE status = 'ready') AS ready,
           count(*) FILTER (WHERE status = 'pending') AS pending,
           count(*) FILTER (WHERE status = 'failed') AS failed,
           count(*) FILTER (WHERE processed_at > clock_timestamp() - interval '60 s') AS recent,
           min(processed_at) FILTER (WHERE processed_at > clock_timestamp() - interval '60 s') AS since
    FROM kb.documents WHERE kb_no = k.kb_no) d
CROSS JOIN LATERAL (
    SELECT d.recent / greatest(extract(epoch FROM clock_timestamp() - d.since), 1) AS rate) r
LEFT JOIN LATERAL (
    SELECT (SELECT count(*) FROM kb.chunks WHERE build_no = b.build_no) AS chunks,
           kb._vector_count(b.build_no) AS vectors,
           kb._index_state(b.build_no) AS index_state,
           -- Most of the time nothing is built, which one look tells for all rows.
           CASE WHEN EXISTS (SELECT FROM pg_stat_progress_create_index p WHERE p.datname = current_database())
                THEN kb._index_progress(b.build_no) END AS building
    FROM kb.builds b WHERE b.kb_no = k.kb_no AND b.state = 'live' OFFSET 0) c ON true;
COMMENT ON VIEW kb.status IS
    'Per knowledge base: documents by state, chunks, vectors, whether an HNSW index is built (indexed), documents per second over the last minute (rate), the time left at that rate (eta; NULL when nothing moved), and how many segments the index has and how many vectors none (segments, unindexed), and how far the index is that is being built now (building: what, phase, done; NULL when none is).';

CREATE VIEW kb.failures WITH (security_invoker = true) AS
SELECT kb_id, tenant_id, external_id, error, sqlstate, attempts, processed_at AS failed_at
FROM kb.documents WHERE status = 'failed' AND error IS NOT NULL;
COMMENT ON VIEW kb.failures IS 'Documents that could not be processed, and why; kb.retry puts them back.';

CREATE VIEW kb.quota_status WITH (security_invoker = true) AS
SELECT q.tenant_id, u.kb_id, u.what, u.used, u.allowed
FROM kb.quotas q
CROSS JOIN LATERAL (
    SELECT NULL::text AS kb_id, 'bytes' AS what, coalesce(sum(c.bytes), 0)::bigint AS used, q.bytes AS allowed
    FROM kb.quota_counts c JOIN kb.knowledge_bases k USING (kb_no) WHERE c.tenant_id = q.tenant_id
    UNION ALL
    SELECT k.id, 'documents', coalesce(sum(c.documents), 0)::bigint, q.documents
    FROM kb.knowledge_bases k LEFT JOIN kb.quota_counts c ON c.kb_no = k.kb_no AND c.tenant_id = q.tenant_id
    WHERE k.tenant_id = q.tenant_id GROUP BY k.kb_no, k.id
    UNION ALL
    SELECT NULL, 'knowledge_bases', count(*), q.knowledge_bases FROM kb.knowledge_bases k WHERE k.tenant_id = q.tenant_id
    UNION ALL
    SELECT NULL, 'tokens_per_day', coalesce(sum(t.tokens), 0)::bigint, q.tokens_per_day FROM kb.usage t
    WHERE t.tenant_id = q.tenant_id AND t.day = (now() AT TIME ZONE 'UTC')::date) u
WHERE u.allowed IS NOT NULL AND q.tenant_id = (SELECT kb.current_tenant());
COMMENT ON VIEW kb.quota_status IS
    'What the session''s tenant has used of its quota: bytes, documents of each knowledge base, knowledge_bases, tokens_per_day (today in UTC).';

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('kb_install.search_path'), true);
