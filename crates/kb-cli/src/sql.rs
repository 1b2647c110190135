//! The statements of the program that are more than a call of one function of kb ([`crate::call`]). Most
//! return one text, and their parameters are texts.

use crate::commands::kind::Kind;

/// Whether the server is a standby, and whether the session only reads.
pub const SESSION_ATTRS: &str = "SELECT pg_catalog.pg_is_in_recovery(),
    pg_catalog.current_setting('transaction_read_only')::pg_catalog.bool";

pub const SET_TENANT: &str = "SELECT pg_catalog.set_config('kb.tenant', $1, false)";

/// The installed extension: its version, and its functions with the names of their arguments, whether the
/// session may call them, and otherwise which role may.
pub const INSTALLED: &str = "
SELECT pg_catalog.json_build_object(
    'version', e.extversion,
    'user', current_user,
    'usage', pg_catalog.has_schema_privilege(n.oid, 'USAGE'),
    'functions', (
        SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
            'name', p.proname,
            'arguments', coalesce(p.proargnames[1:p.pronargs], '{}'),
            'allowed', pg_catalog.has_function_privilege(p.oid, 'EXECUTE'),
            'role', CASE WHEN NOT pg_catalog.has_function_privilege(p.oid, 'EXECUTE') THEN (
                SELECT r.rolname FROM pg_catalog.pg_roles r
                WHERE r.rolname IN ('kb_reader', 'kb_writer', 'kb_admin', 'pg_monitor')
                    AND pg_catalog.has_function_privilege(r.oid, p.oid, 'EXECUTE')
                ORDER BY pg_catalog.array_position('{kb_reader,kb_writer,kb_admin}', r.rolname::pg_catalog.text)
                LIMIT 1) END)), '[]')
        FROM pg_catalog.pg_proc p WHERE p.pronamespace = n.oid))::pg_catalog.text
FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace
WHERE e.extname = 'kb'";

/// The version that CREATE EXTENSION would install; no row if the server has no files of kb.
pub const AVAILABLE: &str =
    "SELECT a.default_version FROM pg_catalog.pg_available_extensions a WHERE a.name = 'kb'";

/// The list of a kind, as a JSON array, for extensions that have no function for it.
pub fn old_list(kind: Kind) -> &'static str {
    match kind {
        Kind::KnowledgeBase => {
            "SELECT pg_catalog.json_agg(pg_catalog.to_jsonb(t) - '{kb_no,tenant_id}'::pg_catalog.text[]
                ORDER BY t.id)::pg_catalog.text FROM kb.knowledge_bases t"
        }
        Kind::Embedder => {
            "SELECT pg_catalog.json_agg(pg_catalog.to_jsonb(t) - 'fingerprint' ORDER BY t.id)::pg_catalog.text
            FROM kb.embedders t"
        }
        Kind::VectorDb => {
            "SELECT pg_catalog.json_agg(pg_catalog.to_jsonb(t) - 'table_name' ORDER BY t.id)::pg_catalog.text
            FROM kb.vector_dbs t"
        }
        Kind::Source => {
            "SELECT pg_catalog.json_agg(pg_catalog.json_build_object('name', s.name, 'type', s.type, 'config', s.config)
                ORDER BY s.name)::pg_catalog.text
            FROM kb.sources s JOIN kb.knowledge_bases k ON k.kb_no = s.kb_no
            WHERE k.id = $1 AND s.name IS NOT NULL"
        }
        Kind::Llm => {
            "SELECT pg_catalog.json_agg(pg_catalog.to_jsonb(t) ORDER BY t.id)::pg_catalog.text FROM kb.llms t"
        }
        Kind::Reranker => {
            "SELECT pg_catalog.json_agg(pg_catalog.to_jsonb(t) ORDER BY t.id)::pg_catalog.text FROM kb.rerankers t"
        }
        Kind::Extractor => {
            "SELECT pg_catalog.json_agg(pg_catalog.to_jsonb(t) ORDER BY t.id)::pg_catalog.text FROM kb.extractors t"
        }
    }
}

/// One thing as a JSON object, for extensions that have no function for it: `$1` is its id; of a source, `$2`
/// is that of its knowledge base.
pub fn old_get(kind: Kind) -> &'static str {
    match kind {
        Kind::KnowledgeBase => {
            "SELECT (pg_catalog.to_jsonb(t) - '{kb_no,tenant_id}'::pg_catalog.text[])::pg_catalog.text
            FROM kb.knowledge_bases t WHERE t.id = $1"
        }
        Kind::Embedder => {
            "SELECT (pg_catalog.to_jsonb(t) - 'fingerprint')::pg_catalog.text FROM kb.embedders t WHERE t.id = $1"
        }
        Kind::VectorDb => {
            "SELECT (pg_catalog.to_jsonb(t) - 'table_name')::pg_catalog.text FROM kb.vector_dbs t WHERE t.id = $1"
        }
        Kind::Source => {
            "SELECT pg_catalog.json_build_object('name', s.name, 'type', s.type, 'config', s.config)::pg_catalog.text
            FROM kb.sources s JOIN kb.knowledge_bases k ON k.kb_no = s.kb_no WHERE s.name = $1 AND k.id = $2"
        }
        Kind::Llm => "SELECT pg_catalog.to_jsonb(t)::pg_catalog.text FROM kb.llms t WHERE t.id = $1",
        Kind::Reranker => "SELECT pg_catalog.to_jsonb(t)::pg_catalog.text FROM kb.rerankers t WHERE t.id = $1",
        Kind::Extractor => "SELECT pg_catalog.to_jsonb(t)::pg_catalog.text FROM kb.extractors t WHERE t.id = $1",
    }
}

/// The number of documents of a knowledge base.
pub const DOCUMENTS: &str = "SELECT s.documents::pg_catalog.text FROM kb.status s WHERE s.kb_id = $1 LIMIT 1";

/// A run of kb.ingest.
pub const RUN: &str = "
SELECT pg_catalog.json_build_object('run', r.run_no, 'state', r.state, 'strategy', r.strategy, 'scanned', r.scanned,
    'added', r.added, 'updated', r.updated, 'skipped', r.skipped, 'deleted', r.deleted, 'failed', r.failed,
    'chunks', r.chunks, 'bytes', r.bytes, 'error', r.error, 'warnings', r.warnings, 'started_at', r.started_at,
    'finished_at', r.finished_at)::pg_catalog.text
FROM kb.runs r WHERE r.run_no = $1::pg_catalog.int8";

/// The ids of chat models, as a JSON array.
pub const LLMS: &str =
    "SELECT coalesce(pg_catalog.json_agg(l.id ORDER BY l.id), '[]')::pg_catalog.text FROM kb.llms l";

pub const CONVERSATION: &str = "SELECT c.id FROM kb.conversations c WHERE c.id = $1";

/// The sections of `kb status`. `$1` is the id of a knowledge base, or NULL for all.
pub const STATUS: &str = "
SELECT coalesce(pg_catalog.json_agg(pg_catalog.to_jsonb(s)
        || pg_catalog.jsonb_build_object('eta_seconds', pg_catalog.date_part('epoch', s.eta))
    ORDER BY s.kb_id, s.tenant_id), '[]')::pg_catalog.text
FROM kb.status s WHERE $1 IS NULL OR s.kb_id = $1";

/// At most this many jobs are counted (100,000), since the table is read again each second.
pub const QUEUE: &str = "
SELECT pg_catalog.json_build_object('jobs', count(*), 'is_bounded', count(*) = 100000,
    'in_progress', count(*) FILTER (WHERE j.leased_until > pg_catalog.now()),
    'delayed', count(*) FILTER (WHERE j.next_attempt_at > pg_catalog.now()),
    'oldest_seconds', pg_catalog.date_part('epoch', pg_catalog.now() - min(j.queued_at)),
    'error', min(j.error))::pg_catalog.text
FROM (SELECT j.leased_until, j.next_attempt_at, j.queued_at, j.error FROM kb.jobs j
    LEFT JOIN kb.knowledge_bases k ON k.kb_no = j.kb_no WHERE $1 IS NULL OR k.id = $1 LIMIT 100000) j";

pub const RUNS: &str = "
SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_object('run', r.run_no, 'kb_id', k.id,
        'strategy', r.strategy, 'scanned', r.scanned,
        'done', r.added + r.updated + r.skipped + r.failed, 'failed', r.failed,
        'started_at', r.started_at) ORDER BY r.run_no), '[]')::pg_catalog.text
FROM kb.runs r JOIN kb.knowledge_bases k ON k.kb_no = r.kb_no
WHERE r.state = 'running' AND ($1 IS NULL OR k.id = $1)";

/// Spending of today (UTC) and of all days, by endpoint.
pub const SPENDING: &str = "
SELECT coalesce(pg_catalog.json_agg(pg_catalog.to_jsonb(s) ORDER BY s.capability, s.endpoint), '[]')::pg_catalog.text
FROM (SELECT u.capability, u.endpoint,
        sum(u.requests) FILTER (WHERE u.day = t.today) AS requests_today,
        sum(u.tokens) FILTER (WHERE u.day = t.today) AS tokens_today,
        sum(u.cost) FILTER (WHERE u.day = t.today) AS cost_today,
        sum(u.requests) AS requests, sum(u.tokens) AS tokens, sum(u.cost) AS cost
    FROM kb.usage u,
        (SELECT (pg_catalog.now() AT TIME ZONE 'UTC')::pg_catalog.date AS today) t
    WHERE $1 IS NULL OR u.kb_id = $1 GROUP BY u.capability, u.endpoint) s";

pub const QUOTAS: &str = "
SELECT coalesce(pg_catalog.json_agg(pg_catalog.to_jsonb(q) ORDER BY q.what, q.kb_id), '[]')::pg_catalog.text
FROM kb.quota_status q WHERE $1 IS NULL OR q.kb_id = $1 OR q.kb_id IS NULL";

pub const EMBED: &str = "SELECT e FROM kb.embed(embedder => $1, texts => $2, kind => $3) AS e";
