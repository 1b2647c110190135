//! The statements of MCP. Each returns one JSON text. Parameters are texts.

/// The options of kb.tools and kb.call_tool, `$1`, with the knowledge bases that there are if they name none.
macro_rules! with_options {
    ($rest:literal) => {
        concat!(
            "
WITH o AS (SELECT $1::pg_catalog.jsonb OPERATOR(pg_catalog.||) CASE
    WHEN $1::pg_catalog.jsonb OPERATOR(pg_catalog.?) 'knowledge_bases' THEN '{}'::pg_catalog.jsonb
    ELSE coalesce((SELECT pg_catalog.jsonb_build_object('knowledge_bases', pg_catalog.jsonb_agg(k.id))
        FROM (SELECT k.id FROM kb.knowledge_bases k
            WHERE NOT EXISTS (SELECT 1 FROM kb.memory_stores m WHERE m.kb_no OPERATOR(pg_catalog.=) k.kb_no)
            ORDER BY k.id LIMIT 100) k
        HAVING pg_catalog.count(*) OPERATOR(pg_catalog.>) 0), '{}'::pg_catalog.jsonb) END AS options)
",
            $rest
        )
    };
}

/// As whom the transaction acts.
pub const CALLER: &str = "SELECT pg_catalog.json_build_object(
    'role', pg_catalog.current_setting('role'),
    'scopes', pg_catalog.current_setting('kb.scopes', true))::pg_catalog.text";

/// What there is to work on, and whether the caller may write.
pub const TOOLS: &str = with_options!(
    "SELECT pg_catalog.json_build_object(
    'knowledge_bases', coalesce(o.options OPERATOR(pg_catalog.->) 'knowledge_bases', '[]'),
    'tools', kb.tools('mcp', o.options),
    'has_llm', EXISTS (SELECT 1 FROM kb.llms),
    'may_write', EXISTS (SELECT 1 FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n
        ON n.oid OPERATOR(pg_catalog.=) p.pronamespace
        WHERE n.nspname OPERATOR(pg_catalog.=) 'kb' AND p.proname OPERATOR(pg_catalog.=) 'put_document'
            AND pg_catalog.has_function_privilege(p.oid, 'EXECUTE')))::pg_catalog.text
FROM o"
);

/// Runs tool `$2` with arguments `$3`.
pub const CALL_TOOL: &str =
    with_options!("SELECT kb.call_tool($2, $3::pg_catalog.jsonb, o.options)::pg_catalog.text FROM o");

pub const QUERY: &str = "
SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_object('rank', r.rank, 'kb_id', r.kb_id,
    'external_id', r.external_id, 'title', r.title, 'content', r.content, 'score', r.score, 'metadata', r.metadata)
    ORDER BY r.rank), '[]')::pg_catalog.text
FROM kb.query(kb_id => $1, query => $2, top_k => $3::pg_catalog.int4, min_score => $4::pg_catalog.float8,
    filter => $5::pg_catalog.jsonb) r";

pub const CONTEXT: &str = "
SELECT pg_catalog.json_build_object('context', c.context, 'tokens', c.tokens, 'truncated', c.truncated,
    'blocks', c.blocks)::pg_catalog.text
FROM kb.context(kb_id => $1, query => $2, max_tokens => $3::pg_catalog.int4, filter => $4::pg_catalog.jsonb) c";

/// With the chat model `$3`, or the first that there is.
pub const ANSWER: &str = "
SELECT pg_catalog.json_build_object('answer', a.answer, 'refused', a.refused, 'annotations', a.annotations,
    'finish_reason', a.finish_reason)::pg_catalog.text
FROM kb.answer(kb_id => $1, question => $2,
    llm => coalesce($3, (SELECT l.id FROM kb.llms l ORDER BY l.id LIMIT 1))) a";

pub const PUT: &str = "
SELECT pg_catalog.json_build_object('external_id', $2::pg_catalog.text, 'result', kb.put_document(kb_id => $1,
    external_id => $2, content => $3::pg_catalog.text, title => $4, metadata => $5::pg_catalog.jsonb))::pg_catalog.text";

/// At most 101 documents after document `$3` of knowledge base `$2`, of the knowledge bases of the array `$1`
/// or of all. The order is that of the index of external ids.
pub const RESOURCES: &str = "
SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_object('kb_id', r.kb_id, 'external_id', r.external_id,
    'title', r.title, 'updated_at', r.updated_at) ORDER BY r.no), '[]')::pg_catalog.text
FROM (SELECT k.id AS kb_id, d.external_id, d.title, d.updated_at, pg_catalog.row_number() OVER (
        ORDER BY k.id USING OPERATOR(pg_catalog.~<~), d.external_id USING OPERATOR(pg_catalog.~<~)) AS no
    FROM kb.knowledge_bases k, LATERAL pg_catalog.unnest(kb.readable_tenants()) AS t (tenant_id),
        LATERAL (SELECT d.external_id, d.title, d.updated_at FROM kb.documents d
            WHERE d.kb_no OPERATOR(pg_catalog.=) k.kb_no AND d.tenant_id OPERATOR(pg_catalog.=) t.tenant_id
                AND d.external_id OPERATOR(pg_catalog.~>~)
                    CASE WHEN k.id OPERATOR(pg_catalog.=) $2 THEN $3 ELSE '' END
            ORDER BY d.external_id USING OPERATOR(pg_catalog.~<~) LIMIT 101) d
    WHERE ($2 IS NULL OR k.id OPERATOR(pg_catalog.~>=~) $2)
        AND ($1 IS NULL OR $1::pg_catalog.jsonb OPERATOR(pg_catalog.?) k.id)
        AND NOT EXISTS (SELECT 1 FROM kb.memory_stores m WHERE m.kb_no OPERATOR(pg_catalog.=) k.kb_no)
    ORDER BY 1 USING OPERATOR(pg_catalog.~<~), 2 USING OPERATOR(pg_catalog.~<~) LIMIT 101) r";

/// The text of document `$2` of knowledge base `$1`; null if there is none.
pub const READ: &str = "
SELECT (SELECT pg_catalog.json_build_object('content', d.content, 'title', d.title)
    FROM kb.knowledge_bases k, LATERAL pg_catalog.unnest(kb.readable_tenants()) AS t (tenant_id),
        LATERAL (SELECT d.content, d.title FROM kb.documents d
            WHERE d.kb_no OPERATOR(pg_catalog.=) k.kb_no AND d.tenant_id OPERATOR(pg_catalog.=) t.tenant_id
                AND d.external_id OPERATOR(pg_catalog.=) $2 LIMIT 1) d
    WHERE k.id OPERATOR(pg_catalog.=) $1
        AND NOT EXISTS (SELECT 1 FROM kb.memory_stores m WHERE m.kb_no OPERATOR(pg_catalog.=) k.kb_no)
    LIMIT 1)::pg_catalog.text";
