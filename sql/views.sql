-- Views of what happens, under the caller's own row-level security.

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
           -- Most of the time nothing is being built, which one look-up tells for all rows.
           CASE WHEN EXISTS (SELECT FROM pg_stat_progress_create_index p WHERE p.datname = current_database())
                THEN kb._index_progress(b.build_no) END AS building
    FROM kb.builds b WHERE b.kb_no = k.kb_no AND b.state = 'live' OFFSET 0) c ON true;
COMMENT ON VIEW kb.status IS
    'The state of each knowledge base: documents by status, chunks, vectors, the processing rate and the time left, and the state of its indexes.';
COMMENT ON COLUMN kb.status.kb_id IS 'The knowledge base''s id.';
COMMENT ON COLUMN kb.status.tenant_id IS 'The tenant that owns the knowledge base.';
COMMENT ON COLUMN kb.status.documents IS 'Number of documents that the session may read.';
COMMENT ON COLUMN kb.status.ready IS 'Number of documents that have been processed.';
COMMENT ON COLUMN kb.status.pending IS 'Number of documents that wait for the worker or are being processed.';
COMMENT ON COLUMN kb.status.failed IS 'Number of documents that could not be processed; see kb.failures.';
COMMENT ON COLUMN kb.status.chunks IS 'Number of chunks of the live build.';
COMMENT ON COLUMN kb.status.vectors IS 'Number of vectors of the live build; 0 if its vector table does not exist or cannot be read.';
COMMENT ON COLUMN kb.status.indexed IS 'Whether any of the vectors has an HNSW index.';
COMMENT ON COLUMN kb.status.rate IS 'Documents per second that became ready or failed in the last minute, or since the first of them; 0 if there were none.';
COMMENT ON COLUMN kb.status.eta IS 'Time left for the pending documents at that rate. 0 if none is pending; NULL if some are, but none was processed in the last minute.';
COMMENT ON COLUMN kb.status.segments IS 'Number of parts of the vector table that have an HNSW index of their own.';
COMMENT ON COLUMN kb.status.unindexed IS 'Number of vectors of the live build without an index. Every question is compared with all of them.';
COMMENT ON COLUMN kb.status.building IS 'The index that is currently being built. what: segment (of vectors without an index) or merge (in place of several segments). phase: as in pg_stat_progress_create_index. done: the fraction that is finished, from 0 to 1; null if it is not known. NULL if no index is being built, or if other knowledge bases use the table as well.';

CREATE VIEW kb.failures WITH (security_invoker = true) AS
SELECT kb_id, tenant_id, external_id, error, sqlstate, attempts, processed_at AS failed_at
FROM kb.documents WHERE status = 'failed' AND error IS NOT NULL;
COMMENT ON VIEW kb.failures IS 'Documents that could not be processed, with the reason. kb.retry puts them back into the queue.';
COMMENT ON COLUMN kb.failures.kb_id IS 'The knowledge base''s id.';
COMMENT ON COLUMN kb.failures.tenant_id IS 'The document''s tenant.';
COMMENT ON COLUMN kb.failures.external_id IS 'The document''s external_id.';
COMMENT ON COLUMN kb.failures.error IS 'The reason of the failure, and what to do about it.';
COMMENT ON COLUMN kb.failures.sqlstate IS 'The error''s SQLSTATE.';
COMMENT ON COLUMN kb.failures.attempts IS 'Number of attempts to process it. Attempts that ended for an unrelated reason, such as a full disk, are not counted.';
COMMENT ON COLUMN kb.failures.failed_at IS 'When processing failed for the last time.';

CREATE VIEW kb.quota_status WITH (security_invoker = true) AS
SELECT t.tenant_id, u.kb_id, u.what, u.used, u.allowed
FROM (SELECT (SELECT kb.current_tenant()) AS tenant_id) t
LEFT JOIN kb.quotas q ON q.tenant_id = t.tenant_id
CROSS JOIN LATERAL (
    SELECT NULL::text AS kb_id, 'bytes' AS what, coalesce(sum(c.bytes), 0)::bigint AS used, q.bytes AS allowed
    FROM kb.quota_counts c JOIN kb.knowledge_bases k USING (kb_no) WHERE c.tenant_id = q.tenant_id
    UNION ALL
    SELECT k.id, 'documents', coalesce(sum(c.documents), 0)::bigint, q.documents
    FROM kb.knowledge_bases k LEFT JOIN kb.quota_counts c ON c.kb_no = k.kb_no AND c.tenant_id = q.tenant_id
    WHERE k.tenant_id = q.tenant_id GROUP BY k.kb_no, k.id
    UNION ALL
    SELECT NULL, 'knowledge_bases', count(*), kb._allowed('knowledge_bases')
    FROM kb.knowledge_bases k WHERE k.tenant_id = t.tenant_id
    UNION ALL
    SELECT NULL, 'attached_tables', count(*), kb._allowed('attached_tables')
    FROM kb.sources s WHERE s.tenant_id = t.tenant_id
    UNION ALL
    SELECT NULL, 'metadata_indexes', count(DISTINCT (m.key, m.type)), kb._allowed('metadata_indexes')
    FROM kb.metadata_indexes m WHERE m.tenant_id = t.tenant_id
    UNION ALL
    SELECT NULL, 'memory_entries', coalesce(sum(m.entries), 0)::bigint, kb._allowed('memory_entries')
    FROM kb.memory_stores s CROSS JOIN LATERAL (
        SELECT count(*) AS entries FROM kb.memory_entries m WHERE m.kb_no = s.kb_no) m WHERE s.tenant_id = t.tenant_id
    UNION ALL
    SELECT NULL, 'tokens_per_day', coalesce(sum(t.tokens), 0)::bigint, q.tokens_per_day FROM kb.usage t
    WHERE t.tenant_id = q.tenant_id AND t.day = (now() AT TIME ZONE 'UTC')::date) u
WHERE u.allowed IS NOT NULL;
COMMENT ON VIEW kb.quota_status IS
    'The part of its quota that the session''s tenant has used, one row for each limit.';
COMMENT ON COLUMN kb.quota_status.tenant_id IS 'The session''s tenant.';
COMMENT ON COLUMN kb.quota_status.kb_id IS 'The id of the knowledge base if what is documents; NULL in other rows, which concern the tenant as a whole.';
COMMENT ON COLUMN kb.quota_status.what IS 'What is limited: bytes (of all that is stored), documents (of one knowledge base), knowledge_bases, attached_tables, metadata_indexes (different keys and types), memory_entries (of all memories), or tokens_per_day (sent to remote endpoints today, in UTC).';
COMMENT ON COLUMN kb.quota_status.used IS 'The amount in use, or used today.';
COMMENT ON COLUMN kb.quota_status.allowed IS 'The limit (kb.set_quota, settings kb.tenant_*). What has no limit has no row.';

-- Runs as its owner, so that one look-up counts the rows of all tenants.
CREATE FUNCTION kb.monitor()
RETURNS TABLE (tenant_id text, kb_id text, documents bigint, ready bigint, pending bigint, failed bigint, chunks bigint,
               due bigint, delayed bigint, leased bigint, oldest_job timestamptz, failing_sources bigint)
LANGUAGE sql STABLE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT k.tenant_id, k.id, coalesce(d.documents, 0), coalesce(d.ready, 0), coalesce(d.pending, 0), coalesce(d.failed, 0),
           coalesce(d.chunks, 0), coalesce(j.due, 0), coalesce(j.delayed, 0), coalesce(j.leased, 0), j.oldest_job,
           coalesce(s.failing_sources, 0)
    FROM kb.knowledge_bases k
    LEFT JOIN (SELECT kb_no, count(*) AS documents,
                      count(*) FILTER (WHERE status = 'ready') AS ready,
                      count(*) FILTER (WHERE status = 'pending') AS pending,
                      count(*) FILTER (WHERE status = 'failed') AS failed,
                      sum(chunk_count)::bigint AS chunks
               FROM kb.documents GROUP BY kb_no) d USING (kb_no)
    LEFT JOIN (SELECT kb_no,
                      count(*) FILTER (WHERE leased_until IS NULL AND next_attempt_at IS NULL) AS due,
                      count(*) FILTER (WHERE leased_until IS NULL AND next_attempt_at IS NOT NULL) AS delayed,
                      count(*) FILTER (WHERE leased_until IS NOT NULL) AS leased,
                      min(queued_at) AS oldest_job
               FROM kb.jobs GROUP BY kb_no) j USING (kb_no)
    LEFT JOIN (SELECT kb_no, count(*) AS failing_sources FROM kb.sources WHERE error IS NOT NULL GROUP BY kb_no) s USING (kb_no);
END;

CREATE VIEW kb.memories WITH (security_invoker = true) AS
SELECT d.external_id AS id,
       d.tenant_id,
       d.kb_id AS memory,
       e.subject,
       d.content AS fact,
       e.confidence,
       e.tags,
       d.metadata,
       e.created_at,
       d.updated_at,
       e.valid_from,
       e.valid_to,
       e.expires_at,
       e.access_count,
       e.last_accessed_at,
       (SELECT o.external_id FROM kb.documents o WHERE o.document_id = e.superseded_by) AS superseded_by,
       CASE WHEN a.at <= now() THEN a.at END AS archived_at,
       d.status,
       (SELECT o.external_id FROM kb.documents o WHERE o.document_id = e.consolidated_into) AS consolidated_into,
       e.source_conversation_id,
       e.source_turn_id,
       CASE WHEN e.source_turn_id IS NOT NULL THEN e.source_start END AS source_start,
       CASE WHEN e.source_turn_id IS NOT NULL THEN e.source_end END AS source_end,
       d.title AS context
FROM kb.memory_entries e
JOIN kb.documents d USING (document_id)
CROSS JOIN LATERAL (
    SELECT coalesce(e.last_accessed_at, e.created_at)
        + make_interval(days => (s.settings #>> '{retention,auto_archive_days}')::integer) AS at
    FROM kb.memory_stores s WHERE s.kb_no = e.kb_no) a;
COMMENT ON VIEW kb.memories IS
    'The entries of memories: facts, with whom they are about, since when they hold, and how often they were used. Changed by kb.remember, kb.touch and kb.forget.';

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('kb_install.search_path'), true);
