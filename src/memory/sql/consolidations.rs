//! The entries of a memory as consolidation reads and marks them. All functions are for the worker, but
//! [`count_not_compared`].

use super::entries::TIME;
use crate::builds::knowledge_bases::KnowledgeBase;
use crate::pg::row::from_row;
use crate::pg::setting;
use crate::pg::spi::{self, Arg, FromRow, Row};
use crate::sql::{BY_LOOKUPS, IN_ORDER};
use kb_types::Json;
use kb_types::error::Result;
use std::collections::HashMap;
use uuid::Uuid;

/// Whether entry m holds, is no part of another one and is not archived. $2: entries that were last accessed
/// then, or before, are archived.
fn is_current() -> String {
    format!(
        "(m.valid_from <= now() AND m.valid_to IS NULL AND m.consolidated_into IS NULL
          AND (m.expires_at IS NULL OR m.expires_at > now())
          AND ($2 IS NULL OR coalesce(m.last_accessed_at, m.created_at) > {TIME} $2))"
    )
}

/// Whether entry m has its vector.
const IS_READY: &str =
    "((SELECT d.status FROM kb.documents d WHERE d.document_id = m.document_id) = 'ready')";

/// The first subject with an entry to be compared, or to be marked because it is not current.
pub fn next_subject(kb_no: i64, accessed_after: Option<i64>) -> Result<Option<String>> {
    let sql = format!(
        "SELECT m.subject FROM kb.memory_entries m
         WHERE m.kb_no = $1 AND NOT m.is_compared AND ({IS_READY} OR NOT {})
         ORDER BY m.subject, m.created_at, m.document_id LIMIT 1",
        is_current()
    );
    setting::with(IN_ORDER, || {
        spi::write_one(&sql, &[Arg::Long(kb_no), Arg::LongOrNull(accessed_after)], Row::only)
    })
}

/// Whether an entry that was not compared will get its vector.
pub fn any_pending(kb_no: i64) -> Result<bool> {
    let sql = "SELECT EXISTS (SELECT FROM kb.memory_entries m
               WHERE m.kb_no = $1 AND NOT m.is_compared
                 AND (SELECT d.status FROM kb.documents d WHERE d.document_id = m.document_id) = 'pending')";
    Ok(setting::with(BY_LOOKUPS, || spi::write_one(sql, &[Arg::Long(kb_no)], Row::only))?.unwrap_or(false))
}

/// How many entries were not compared. Must run as the owner.
pub fn count_not_compared(kb: &KnowledgeBase) -> Result<i64> {
    let sql = "SELECT count(*) FROM kb.memory_entries m WHERE m.kb_no = $1 AND m.tenant_id = $2 AND NOT m.is_compared";
    let arguments = [Arg::Long(kb.kb_no), Arg::Text(&kb.tenant_id)];
    Ok(setting::with(BY_LOOKUPS, || spi::write_one(sql, &arguments, Row::only))?.unwrap_or(0))
}

/// The oldest entries of a subject that were not compared, and whether each is current.
pub fn not_compared(
    kb_no: i64,
    accessed_after: Option<i64>,
    subject: &str,
    limit: usize,
) -> Result<Vec<(i64, bool)>> {
    let sql = format!(
        "SELECT m.document_id, {current} AS is_current FROM kb.memory_entries m
         WHERE m.kb_no = $1 AND m.subject = $3 AND NOT m.is_compared AND ({IS_READY} OR NOT {current})
         ORDER BY m.created_at, m.document_id LIMIT $4",
        current = is_current()
    );
    let arguments =
        [Arg::Long(kb_no), Arg::LongOrNull(accessed_after), Arg::Text(subject), Arg::Long(limit as i64)];
    setting::with(IN_ORDER, || {
        spi::write(&sql, &arguments, |row| Ok((row.get("document_id")?, row.get("is_current")?)))
    })
}

/// The newest entries of a subject that are current and have their vectors.
pub fn newest(kb_no: i64, accessed_after: Option<i64>, subject: &str, limit: usize) -> Result<Vec<i64>> {
    let sql = format!(
        "SELECT m.document_id FROM kb.memory_entries m
         WHERE m.kb_no = $1 AND m.subject = $3 AND {IS_READY} AND {}
         ORDER BY m.created_at DESC, m.document_id DESC LIMIT $4",
        is_current()
    );
    let arguments =
        [Arg::Long(kb_no), Arg::LongOrNull(accessed_after), Arg::Text(subject), Arg::Long(limit as i64)];
    setting::with(BY_LOOKUPS, || spi::write(&sql, &arguments, Row::only))
}

from_row! {
    /// An entry, and the chunk whose vector stands for it.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Compared {
        pub document_id: i64,
        pub fact: String,
        pub confidence: f64,
        pub tags: Vec<String>,
        pub metadata: Json,
        /// The day since when it holds.
        pub since: String,
        /// In microseconds since 1970.
        pub expires_at: Option<i64>,
        pub chunk_id: Option<Uuid>,
    }
}

/// These entries, in their order.
pub fn read(build_no: i64, document_ids: &[i64]) -> Result<Vec<Compared>> {
    let sql = "SELECT m.document_id, coalesce(d.content, '') AS fact, m.confidence, m.tags, d.metadata,
                 pg_catalog.to_char(m.valid_from AT TIME ZONE 'UTC', 'YYYY-MM-DD') AS since,
                 (pg_catalog.date_part('epoch', m.expires_at) * 1000000)::bigint AS expires_at, c.chunk_id
             FROM pg_catalog.unnest($2::bigint[]) WITH ORDINALITY AS u (id, n)
             JOIN kb.memory_entries m ON m.document_id = u.id
             JOIN kb.documents d ON d.document_id = u.id
             LEFT JOIN LATERAL (SELECT c.chunk_id FROM kb.chunks c
                                WHERE c.document_id = u.id AND c.build_no = $1 ORDER BY c.ordinal LIMIT 1) c ON true
             ORDER BY u.n";
    let arguments = [Arg::Long(build_no), Arg::Longs(document_ids)];
    setting::with(BY_LOOKUPS, || spi::write(sql, &arguments, Compared::from_row))
}

/// Marks entries as compared, but those that another transaction has locked. Returns how many were marked.
pub fn set_compared(document_ids: &[i64]) -> Result<u64> {
    setting::with(BY_LOOKUPS, || {
        spi::execute(
            "UPDATE kb.memory_entries m SET is_compared = true
             FROM (SELECT u.id FROM pg_catalog.unnest($1::bigint[]) AS u (id)
                   CROSS JOIN LATERAL (SELECT FROM kb.memory_entries e WHERE e.document_id = u.id
                                       LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) e OFFSET 0) u
             WHERE m.document_id = u.id",
            &[Arg::Longs(document_ids)],
        )
    })
}

/// Locks those of these entries that are current, and their documents. Returns their facts.
pub fn lock_current(
    kb_no: i64,
    accessed_after: Option<i64>,
    document_ids: &[i64],
) -> Result<HashMap<i64, String>> {
    // A statement of its own: the next one sees what those who had locked a document have made of it.
    let _: Vec<i64> = setting::with(BY_LOOKUPS, || {
        spi::write(
            "SELECT d.document_id
             FROM (SELECT u.id FROM pg_catalog.unnest($1::bigint[]) AS u (id) ORDER BY u.id OFFSET 0) u
             CROSS JOIN LATERAL (SELECT d.document_id FROM kb.documents d
                                 WHERE d.document_id = u.id LIMIT 1 FOR NO KEY UPDATE) d",
            &[Arg::Longs(document_ids)],
            Row::only,
        )
    })?;
    let sql = format!(
        "SELECT m.document_id, coalesce(d.content, '') AS fact
         FROM (SELECT u.id FROM pg_catalog.unnest($3::bigint[]) AS u (id) ORDER BY u.id OFFSET 0) u
         CROSS JOIN LATERAL (SELECT m.document_id FROM kb.memory_entries m
                             WHERE m.document_id = u.id AND m.kb_no = $1 AND {}
                             LIMIT 1 FOR NO KEY UPDATE) m
         JOIN kb.documents d ON d.document_id = m.document_id",
        is_current()
    );
    let arguments = [Arg::Long(kb_no), Arg::LongOrNull(accessed_after), Arg::Longs(document_ids)];
    let found: Vec<(i64, String)> = setting::with(BY_LOOKUPS, || {
        spi::write(&sql, &arguments, |row| Ok((row.get("document_id")?, row.get("fact")?)))
    })?;
    Ok(found.into_iter().collect())
}

/// Records that entries were merged into the one with this id. None of them is compared again.
pub fn merge(kb: &KnowledgeBase, document_ids: &[i64], id: &str) -> Result<()> {
    setting::with(BY_LOOKUPS, || {
        spi::execute(
            "UPDATE kb.memory_entries m SET is_compared = true,
                 consolidated_into = CASE WHEN m.document_id <> r.document_id THEN r.document_id END
             FROM (SELECT d.document_id FROM kb.documents d
                   WHERE d.kb_no = $1 AND d.tenant_id = $2 AND d.external_id = $4) r
             WHERE m.document_id = ANY ($3) OR m.document_id = r.document_id",
            &[Arg::Long(kb.kb_no), Arg::Text(&kb.tenant_id), Arg::Longs(document_ids), Arg::Text(id)],
        )
    })?;
    Ok(())
}
