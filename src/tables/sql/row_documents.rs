//! Documents that are rows of attached tables. Must run as the owner.
//!
//! Look-ups by name compare the source with IS NOT DISTINCT FROM, which no index serves. Otherwise the
//! planner might choose the index on source_no, of which it knows nothing while a source is new, and each
//! document would be searched for among all of its source.

use super::changes::IS_LOST;
use super::sources::Source;
use crate::pg::row::from_row;
use crate::pg::spi::{self, Arg, FromRow, Row};
use kb_types::error::{Error, Result};
use pgrx::datum::TimestampWithTimeZone;

from_row! {
    /// The identity of a document.
    #[derive(Debug, Clone, PartialEq)]
    pub struct RowDocument {
        pub document_id: i64,
        pub tenant_id: String,
        pub external_id: String,
    }
}

impl RowDocument {
    /// The tenant and the external_id.
    pub fn name(&self) -> (&str, &str) {
        (&self.tenant_id, &self.external_id)
    }
}

/// The next documents of a source, in the order of their document_ids.
pub fn after(source_no: i64, document_id: i64, limit: usize) -> Result<Vec<RowDocument>> {
    spi::write(
        "SELECT document_id, tenant_id, external_id FROM kb.documents
         WHERE source_no = $1 AND document_id > $2 ORDER BY document_id LIMIT $3",
        &[Arg::Long(source_no), Arg::Long(document_id), Arg::Long(limit as i64)],
        RowDocument::from_row,
    )
}

/// The content hashes of a source's documents, by tenants and external_ids, in the order of these. None:
/// there is no such document.
pub fn hashes(source: &Source, tenants: &[String], external_ids: &[String]) -> Result<Vec<Option<Vec<u8>>>> {
    spi::write(
        "SELECT (SELECT d.content_hash FROM kb.documents d
                 WHERE d.kb_no = $1 AND d.tenant_id = u.tenant_id AND d.external_id = u.external_id
                   AND d.source_no IS NOT DISTINCT FROM $4)
         FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS u (tenant_id, external_id, place) ORDER BY u.place",
        &[
            Arg::Long(source.kb_no),
            Arg::Texts(tenants),
            Arg::Texts(external_ids),
            Arg::Long(source.source_no),
        ],
        Row::only,
    )
}

/// Deletes the jobs of a source.
pub fn delete_jobs(source: &Source) -> Result<()> {
    spi::execute(
        "DELETE FROM kb.jobs WHERE kb_no = $1 AND source_no = $2",
        &[Arg::Long(source.kb_no), Arg::Long(source.source_no)],
    )?;
    Ok(())
}

/// Turns the jobs of a source whose documents are kept into jobs of documents that were put.
pub fn keep_jobs(source: &Source) -> Result<()> {
    spi::execute(
        "UPDATE kb.jobs j SET source_no = NULL WHERE j.kb_no = $1 AND j.source_no = $2 AND (
             SELECT d.document_id FROM kb.documents d
             WHERE d.kb_no = j.kb_no AND d.tenant_id = j.tenant_id AND d.external_id = j.subject
               AND d.source_no IS NULL) IS NOT NULL",
        &[Arg::Long(source.kb_no), Arg::Long(source.source_no)],
    )?;
    Ok(())
}

/// Turns the documents of a source into documents that were put. Returns their number.
pub fn keep(source_no: i64) -> Result<i64> {
    let kept = spi::execute(
        "UPDATE kb.documents SET source_no = NULL, partition = NULL WHERE source_no = $1",
        &[Arg::Long(source_no)],
    )?;
    Ok(kept as i64)
}

/// Deletes the documents of a source, with their chunks and vectors. Returns their number.
pub fn delete_all(source_no: i64) -> Result<i64> {
    Ok(spi::execute("DELETE FROM kb.documents WHERE source_no = $1", &[Arg::Long(source_no)])? as i64)
}

/// Deletes the documents of a source that are hidden because their rows are gone, although the worker has not
/// processed that yet.
pub fn delete_hidden(source: &Source) -> Result<()> {
    let arguments = [Arg::Long(source.source_no), Arg::Long(source.kb_no), Arg::Text(&source.tenant_id)];
    spi::execute(
        &format!(
            "DELETE FROM kb.documents d WHERE source_no = $1 AND (EXISTS (
                 SELECT FROM kb.changes c WHERE c.source_no = $1 AND c.change = 'truncated') OR {IS_LOST})"
        ),
        &arguments[..1],
    )?;
    spi::execute(
        "DELETE FROM kb.documents WHERE document_id = ANY (ARRAY(
             SELECT d.document_id
             FROM (SELECT unnest(tenants) AS tenant_id, unnest(keys) AS key
                   FROM kb.changes WHERE source_no = $1 AND change = 'gone') g
             CROSS JOIN LATERAL (
                 SELECT d.document_id FROM kb.documents d WHERE d.kb_no = $2
                   AND d.tenant_id = coalesce(g.tenant_id, $3) AND d.external_id = g.key AND d.source_no IS NOT DISTINCT FROM $1
                 LIMIT 1) d))",
        &arguments,
    )?;
    Ok(())
}

/// Records the partition in which a row was read. The caller has the document locked.
pub fn set_partition(source: &Source, tenant_id: &str, external_id: &str, partition: u32) -> Result<()> {
    spi::execute(
        "UPDATE kb.documents SET partition = $4::oid WHERE kb_no = $1 AND tenant_id = $2 AND external_id = $3
             AND partition IS DISTINCT FROM $4::oid",
        &[
            Arg::Long(source.kb_no),
            Arg::Text(tenant_id),
            Arg::Text(external_id),
            Arg::Long(i64::from(partition)),
        ],
    )?;
    Ok(())
}

/// Forgets the partitions, which have other oids after a restore. For the worker.
pub fn forget_partitions() -> Result<()> {
    spi::execute("UPDATE kb.documents SET partition = NULL WHERE partition IS NOT NULL", &[])?;
    Ok(())
}

/// Deletes some documents of a source that no transaction has locked. Returns their number.
pub fn delete_some(source_no: i64, limit: usize) -> Result<u64> {
    spi::execute(
        "DELETE FROM kb.documents WHERE document_id = ANY (ARRAY(
             SELECT document_id FROM kb.documents WHERE source_no = $1 ORDER BY document_id LIMIT $2
             FOR UPDATE SKIP LOCKED))",
        &[Arg::Long(source_no), Arg::Long(limit as i64)],
    )
}

/// Whether a source has any document.
pub fn any(source_no: i64) -> Result<bool> {
    spi::write_value("SELECT EXISTS (SELECT FROM kb.documents WHERE source_no = $1)", &[Arg::Long(source_no)])
}

from_row! {
    /// The state of a row's document.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Present {
        pub document_id: i64,
        pub is_ready: bool,
        pub is_pending: bool,
        /// The settings of its chunks.
        pub settings: Option<String>,
        /// Whether it comes from this source.
        pub is_own: bool,
        /// The source whose row it is, or None if it was put.
        pub source_no: Option<i64>,
    }
}

/// The result of locking a row's document.
#[derive(Debug, Clone, PartialEq)]
pub enum FoundRow {
    None,
    /// An open transaction has it locked.
    Locked,
    Present(Present),
}

/// Locks a row's document, unless another transaction has it locked.
pub fn lock(source: &Source, tenant_id: &str, external_id: &str) -> Result<FoundRow> {
    let arguments =
        [Arg::Long(source.kb_no), Arg::Text(tenant_id), Arg::Text(external_id), Arg::Long(source.source_no)];
    let present = spi::write_one(
        "SELECT document_id, status = 'ready' AS is_ready, status = 'pending' AS is_pending, settings,
             source_no IS NOT DISTINCT FROM $4 AS is_own, source_no
         FROM kb.documents
         WHERE kb_no = $1 AND tenant_id = $2 AND external_id = $3 FOR UPDATE SKIP LOCKED",
        &arguments,
        Present::from_row,
    )?;
    if let Some(present) = present {
        return Ok(FoundRow::Present(present));
    }
    let is_there = spi::write_one(
        "SELECT EXISTS (SELECT FROM kb.documents WHERE kb_no = $1 AND tenant_id = $2 AND external_id = $3)",
        &arguments[..3],
        Row::only::<bool>,
    )?;
    Ok(if is_there == Some(true) { FoundRow::Locked } else { FoundRow::None })
}

/// Deletes the documents of rows that are gone, by tenants and external_ids. Returns the places of those that
/// an open transaction has locked.
pub fn delete_gone(source: &Source, tenants: &[String], external_ids: &[String]) -> Result<Vec<usize>> {
    let arguments =
        [Arg::Long(source.kb_no), Arg::Texts(tenants), Arg::Texts(external_ids), Arg::Long(source.source_no)];
    let found = "SELECT l.document_id, u.place
         FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS u (tenant_id, external_id, place)
         CROSS JOIN LATERAL (
             SELECT d.document_id FROM kb.documents d
             WHERE d.kb_no = $1 AND d.tenant_id = u.tenant_id AND d.external_id = u.external_id
               AND d.source_no IS NOT DISTINCT FROM $4";
    spi::execute(
        &format!(
            "DELETE FROM kb.documents WHERE document_id = ANY (ARRAY(
                 SELECT f.document_id FROM ({found} FOR UPDATE SKIP LOCKED) l) f))"
        ),
        &arguments,
    )?;
    spi::write(&format!("{found}) l"), &arguments, |row| Ok(row.get::<i64>("place")? as usize - 1))
}

from_row! {
    /// The status of a row's document, and the time since when it has it.
    #[derive(Debug, Clone)]
    pub struct RowStatus {
        /// absent, pending, ready, stale or failed.
        pub status: String,
        /// None: the status has no beginning.
        pub since: Option<TimestampWithTimeZone>,
    }
}

/// The status of a row of a source.
pub fn status(source: &Source, tenant_id: &str, external_id: &str) -> Result<RowStatus> {
    let found = spi::read_one(
        &format!("SELECT CASE WHEN w.is_gone OR d.document_id IS NOT NULL AND {IS_LOST} THEN 'absent'
                     WHEN w.at IS NULL AND d.status IS NOT NULL THEN d.status
                     WHEN d.chunk_count > 0 THEN 'stale'
                     WHEN w.at IS NOT NULL THEN 'pending'
                     ELSE 'absent' END AS status,
                CASE WHEN w.at IS NULL THEN coalesce(d.processed_at, d.updated_at) ELSE w.at END AS since
         FROM (SELECT pg_catalog.min(at) AS at, coalesce(pg_catalog.bool_or(is_gone), false) AS is_gone FROM (
                   SELECT j.queued_at AS at, false AS is_gone FROM kb.jobs j
                   WHERE j.kb_no = $1 AND j.tenant_id = $3 AND j.kind = 'document' AND j.subject = $4
                   UNION ALL
                   SELECT c.changed_at, c.change <> 'changed' FROM kb.changes c
                   WHERE c.source_no = $2 AND c.change IN ('changed', 'gone', 'truncated') AND (c.change = 'truncated' OR EXISTS (
                       SELECT FROM unnest(c.tenants, c.keys) AS k (tenant_id, key)
                       WHERE k.key = $4 AND coalesce(k.tenant_id, $5) = $3))) a) w
         LEFT JOIN kb.documents d
             ON d.kb_no = $1 AND d.tenant_id = $3 AND d.external_id = $4 AND d.source_no IS NOT DISTINCT FROM $2"),
        &[
            Arg::Long(source.kb_no),
            Arg::Long(source.source_no),
            Arg::Text(tenant_id),
            Arg::Text(external_id),
            Arg::Text(&source.tenant_id),
        ],
        RowStatus::from_row,
    )?;
    found.ok_or_else(|| Error::Internal("no status of a row".into()))
}
