//! The documents of a source.

use super::catalog::Source;
use crate::pg::row::from_row;
use crate::pg::spi::{self, Arg, FromRow, Row};
use kb_types::error::Result;
use std::collections::HashSet;

from_row! {
    /// A document that has the id of something listed.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Known {
        pub external_id: String,
        /// What its source said of it when it was last read.
        pub version: Option<String>,
        /// Whether it comes from this source.
        pub is_own: bool,
    }
}

/// Those of these documents that exist.
pub fn known(source: &Source, external_ids: &[String]) -> Result<Vec<Known>> {
    spi::write(
        "SELECT d.external_id, d.version, d.source_no IS NOT DISTINCT FROM $4 AS is_own
         FROM pg_catalog.unnest($3::text[]) AS u (id) CROSS JOIN LATERAL (
             SELECT d.external_id, d.version, d.source_no FROM kb.documents d
             WHERE d.kb_no = $1 AND d.tenant_id = $2 AND d.external_id = u.id OFFSET 0) d",
        &[
            Arg::Long(source.kb_no),
            Arg::Text(&source.tenant_id),
            Arg::Texts(external_ids),
            Arg::Long(source.source_no),
        ],
        Known::from_row,
    )
}

/// Locks those of these documents that exist. Returns those that an open transaction has locked.
pub fn lock(source: &Source, external_ids: &[String]) -> Result<HashSet<String>> {
    let there = known(source, external_ids)?;
    let locked: HashSet<String> = spi::write(
        "SELECT l.external_id FROM (
             SELECT (SELECT d.document_id FROM kb.documents d
                     WHERE d.kb_no = $1 AND d.tenant_id = $2 AND d.external_id = u.id) AS document_id
             FROM pg_catalog.unnest($3::text[]) AS u (id) ORDER BY 1) s
         CROSS JOIN LATERAL (
             SELECT d.external_id FROM kb.documents d WHERE d.document_id = s.document_id
             FOR NO KEY UPDATE SKIP LOCKED) l",
        &[Arg::Long(source.kb_no), Arg::Text(&source.tenant_id), Arg::Texts(external_ids)],
        Row::only::<String>,
    )?
    .into_iter()
    .collect();
    Ok(there.into_iter().map(|known| known.external_id).filter(|id| !locked.contains(id)).collect())
}

/// Records the versions that were read.
pub fn set_versions(source: &Source, external_ids: &[String], versions: &[String]) -> Result<()> {
    spi::execute(
        "UPDATE kb.documents SET version = w.version
         FROM (SELECT (SELECT d.document_id FROM kb.documents d
                       WHERE d.kb_no = $1 AND d.tenant_id = $2 AND d.external_id = u.id) AS number, u.version
               FROM unnest($3::text[], $4::text[]) AS u (id, version)) w
         WHERE document_id = w.number",
        &[
            Arg::Long(source.kb_no),
            Arg::Text(&source.tenant_id),
            Arg::Texts(external_ids),
            Arg::Texts(versions),
        ],
    )?;
    Ok(())
}

/// Records why a document of the source could not be read.
pub fn set_failed(source: &Source, external_id: &str, error: &str, sqlstate: &str) -> Result<()> {
    spi::execute(
        "UPDATE kb.documents SET status = 'failed', error = $4, sqlstate = $5, attempts = 1, version = NULL,
             processed_at = pg_catalog.clock_timestamp()
         WHERE kb_no = $1 AND tenant_id = $2 AND external_id = $3 AND source_no IS NOT DISTINCT FROM $6",
        &[
            Arg::Long(source.kb_no),
            Arg::Text(&source.tenant_id),
            Arg::Text(external_id),
            Arg::Text(error),
            Arg::Text(sqlstate),
            Arg::Long(source.source_no),
        ],
    )?;
    Ok(())
}

/// Those of these documents that wait for the worker in this run, which counts them when they are processed.
pub fn waiting(source: &Source, external_ids: &[String], run_no: i64) -> Result<HashSet<String>> {
    let waiting = spi::write(
        "SELECT u.id FROM pg_catalog.unnest($3::text[]) AS u (id) WHERE $4 = (
             SELECT j.run_no FROM kb.jobs j
             WHERE j.kb_no = $1 AND j.tenant_id = $2 AND j.kind = 'document' AND j.subject = u.id)",
        &[Arg::Long(source.kb_no), Arg::Text(&source.tenant_id), Arg::Texts(external_ids), Arg::Long(run_no)],
        Row::only::<String>,
    )?;
    Ok(waiting.into_iter().collect())
}

from_row! {
    #[derive(Debug, Clone, PartialEq)]
    pub struct Stored {
        pub document_id: i64,
        pub external_id: String,
    }
}

from_row! {
    #[derive(Debug, Clone, PartialEq)]
    pub struct StoredVersion {
        pub document_id: i64,
        pub external_id: String,
        pub version: Option<String>,
    }
}

/// The next documents of a source with what it said of them when they were last read, in the order of their
/// document_ids.
pub fn versions(source_no: i64, document_id: i64, limit: usize) -> Result<Vec<StoredVersion>> {
    spi::write(
        "SELECT document_id, external_id, version FROM kb.documents
         WHERE source_no = $1 AND document_id > $2 ORDER BY document_id LIMIT $3",
        &[Arg::Long(source_no), Arg::Long(document_id), Arg::Long(limit as i64)],
        StoredVersion::from_row,
    )
}

/// The next documents of a source, in the order of their document_ids.
pub fn after(source_no: i64, document_id: i64, limit: usize) -> Result<Vec<Stored>> {
    spi::write(
        "SELECT document_id, external_id FROM kb.documents
         WHERE source_no = $1 AND document_id > $2 ORDER BY document_id LIMIT $3",
        &[Arg::Long(source_no), Arg::Long(document_id), Arg::Long(limit as i64)],
        Stored::from_row,
    )
}

/// Deletes those of these documents that no open transaction has locked. Returns their external_ids.
pub fn delete(document_ids: &[i64]) -> Result<Vec<String>> {
    spi::write(
        "DELETE FROM kb.documents WHERE document_id = ANY (ARRAY(
             SELECT d.document_id FROM kb.documents d WHERE d.document_id = ANY ($1)
             ORDER BY d.document_id FOR UPDATE SKIP LOCKED)) RETURNING external_id",
        &[Arg::Longs(document_ids)],
        Row::only,
    )
}

/// Deletes the documents of a source. Returns their external_ids.
pub fn delete_all(source_no: i64) -> Result<Vec<String>> {
    let sql = "DELETE FROM kb.documents WHERE source_no = $1 RETURNING external_id";
    spi::write(sql, &[Arg::Long(source_no)], Row::only)
}

/// Turns the documents of a source into documents that were put, but for those that could never be read.
/// Returns their number.
pub fn keep_all(source_no: i64) -> Result<i64> {
    spi::execute(
        "DELETE FROM kb.documents WHERE source_no = $1 AND status = 'failed' AND original IS NULL AND content = ''",
        &[Arg::Long(source_no)],
    )?;
    let sql = "UPDATE kb.documents SET source_no = NULL, version = NULL WHERE source_no = $1";
    Ok(spi::execute(sql, &[Arg::Long(source_no)])? as i64)
}
