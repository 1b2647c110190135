//! Entries that were merged into others (kb.memory_entries.consolidated_into). All functions must run as the
//! owner, or in the worker.

use crate::builds::knowledge_bases::KnowledgeBase;
use crate::pg::setting;
use crate::pg::spi::{self, Arg, Row};
use crate::sql::BY_LOOKUPS;
use kb_types::error::Result;

/// These entries, and all that was merged into them, in steps or at once. In the order of their numbers.
pub fn with_sources(document_ids: &[i64]) -> Result<Vec<i64>> {
    setting::with(BY_LOOKUPS, || {
        spi::write(
            "WITH RECURSIVE s (document_id) AS (
                 SELECT u.id FROM pg_catalog.unnest($1::bigint[]) AS u (id)
                 UNION
                 SELECT m.document_id FROM s JOIN kb.memory_entries m ON m.consolidated_into = s.document_id)
             SELECT s.document_id FROM s ORDER BY s.document_id",
            &[Arg::Longs(document_ids)],
            Row::only,
        )
    })
}

/// The entries, besides these, into which they were merged, in steps or at once.
pub fn made_of(document_ids: &[i64]) -> Result<Vec<i64>> {
    setting::with(BY_LOOKUPS, || {
        spi::write(
            "WITH RECURSIVE r (document_id) AS (
                 SELECT m.consolidated_into FROM pg_catalog.unnest($1::bigint[]) AS u (id)
                 JOIN kb.memory_entries m ON m.document_id = u.id AND m.consolidated_into IS NOT NULL
                 UNION
                 SELECT m.consolidated_into FROM r
                 JOIN kb.memory_entries m ON m.document_id = r.document_id AND m.consolidated_into IS NOT NULL)
             SELECT r.document_id FROM r WHERE r.document_id NOT IN (SELECT u.id FROM pg_catalog.unnest($1::bigint[]) AS u (id))
             ORDER BY r.document_id",
            &[Arg::Longs(document_ids)],
            Row::only,
        )
    })
}

/// How many entries were merged into these, besides these and others.
pub fn count_sources_but(document_ids: &[i64], others: &[i64]) -> Result<i64> {
    if document_ids.is_empty() {
        return Ok(0);
    }
    let but = [document_ids, others].concat();
    let found = setting::with(BY_LOOKUPS, || {
        spi::write_one(
            "SELECT count(*) FROM pg_catalog.unnest($1::bigint[]) AS u (id)
             JOIN kb.memory_entries m ON m.consolidated_into = u.id
             WHERE m.document_id NOT IN (SELECT b.id FROM pg_catalog.unnest($2::bigint[]) AS b (id))",
            &[Arg::Longs(document_ids), Arg::Longs(&but)],
            Row::only,
        )
    })?;
    Ok(found.unwrap_or(0))
}

/// The entries into which those with these ids were merged, in steps or at once.
pub fn made_of_ids(kb: &KnowledgeBase, ids: &[String]) -> Result<Vec<i64>> {
    let found: Vec<i64> = setting::with(BY_LOOKUPS, || {
        spi::write(
            "SELECT m.document_id FROM pg_catalog.unnest($3::text[]) AS u (id)
             CROSS JOIN LATERAL (
                 SELECT m.document_id FROM kb.documents d JOIN kb.memory_entries m ON m.document_id = d.document_id
                 WHERE d.kb_no = $1 AND d.tenant_id = $2 AND d.external_id = u.id AND m.consolidated_into IS NOT NULL LIMIT 1) m",
            &[Arg::Long(kb.kb_no), Arg::Text(&kb.tenant_id), Arg::Texts(ids)],
            Row::only,
        )
    })?;
    if found.is_empty() { Ok(found) } else { made_of(&found) }
}

/// An entry was superseded: what was merged into it ends with it, and so does what it was merged into, whose
/// other sources count on their own again.
pub fn end_with(document_id: i64) -> Result<()> {
    let below: Vec<i64> = with_sources(&[document_id])?.into_iter().filter(|id| *id != document_id).collect();
    let above = made_of(&[document_id])?;
    let end = |ids: &[i64], superseded_by: &str| {
        if ids.is_empty() {
            return Ok(0);
        }
        let sql = format!(
            "UPDATE kb.memory_entries m SET valid_to = least(m.valid_to, greatest(e.valid_to, m.valid_from)){superseded_by}
             FROM kb.memory_entries e WHERE e.document_id = $1 AND m.document_id = ANY ($2)"
        );
        setting::with(BY_LOOKUPS, || spi::execute(&sql, &[Arg::Long(document_id), Arg::Longs(ids)]))
    };
    end(&below, ", superseded_by = coalesce(m.superseded_by, e.superseded_by)")?;
    end(&above, "")?;
    if !above.is_empty() {
        setting::with(BY_LOOKUPS, || {
            spi::execute(
                "UPDATE kb.memory_entries SET consolidated_into = NULL WHERE consolidated_into = ANY ($1)",
                &[Arg::Longs(&above)],
            )
        })?;
    }
    Ok(())
}
