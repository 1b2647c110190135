//! The statements of `kb eval` and `kb tune`. Parameters are texts, and rows come as one JSON array.

/// A row for each set of options, in their order.
pub const EVALUATE: &str = "SELECT coalesce(pg_catalog.json_agg(e), '[]')::text FROM kb.evaluate($1, $2,
        ARRAY(SELECT o.options::jsonb FROM pg_catalog.jsonb_array_elements_text($3::jsonb)
                  WITH ORDINALITY AS o (options, number) ORDER BY o.number)) e";

pub const TUNE: &str = "SELECT coalesce(pg_catalog.json_agg(t), '[]')::text
    FROM kb.tune($1, $2, apply => $3::boolean, k => $4::integer, top_k => $5::integer) t";

pub const LOAD_EVAL: &str = "SELECT kb.load_eval($1, $2, $3, $4)::text";

pub const DOCUMENTS: &str = "SELECT count(*) FROM kb.documents d JOIN kb.knowledge_bases k USING (kb_no)
    WHERE k.id = $1 AND k.tenant_id = kb.current_tenant() AND d.tenant_id = k.tenant_id";

/// How many of these documents there are.
pub const KNOWN: &str = "SELECT count(*) FROM (
        SELECT (SELECT true FROM kb.documents d
                WHERE d.kb_no = k.kb_no AND d.tenant_id = k.tenant_id AND d.external_id = u.external_id) AS is_known
        FROM kb.knowledge_bases k CROSS JOIN pg_catalog.unnest($2::text[]) AS u (external_id)
        WHERE k.id = $1 AND k.tenant_id = kb.current_tenant()) s
    WHERE s.is_known";

pub const WAIT: &str = "SELECT kb.wait($1, 2)";

pub const PENDING: &str =
    "SELECT pending::text FROM kb.status WHERE kb_id = $1 AND tenant_id = kb.current_tenant()";
