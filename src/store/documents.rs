//! kb.documents.

use crate::error::Result;
use crate::model::Json;
use crate::pg::spi::{self, Arg};
use std::collections::HashSet;

/// A document as it is put.
#[derive(Debug, Clone, PartialEq)]
pub struct NewDocument {
    pub external_id: String,
    pub content: String,
    pub content_type: String,
    pub title: Option<String>,
    pub uri: Option<String>,
    /// None: what the document has already, or none.
    pub metadata: Option<Json>,
}

impl NewDocument {
    /// Changes when the document must be processed again.
    pub fn hash(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.content_type.as_bytes());
        hasher.update(&[0]);
        hasher.update(self.content.as_bytes());
        *hasher.finalize().as_bytes()
    }
}

/// What putting a document did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    Added,
    Updated,
    /// Content and type are as before (metadata, title and uri were taken over).
    Skipped,
}

impl Put {
    pub fn name(self) -> &'static str {
        match self {
            Put::Added => "added",
            Put::Updated => "updated",
            Put::Skipped => "skipped",
        }
    }
}

/// Inserts or updates. A failed document put again is an update, though its content be the same.
pub fn put(kb_no: i64, tenant_id: &str, document: &NewDocument) -> Result<Put> {
    let hash = document.hash();
    let unchanged = spi::execute(
        "UPDATE kb.documents SET metadata = coalesce($4, metadata), uri = coalesce($5, uri),
             title = coalesce($6, title), updated_at = now()
         WHERE kb_no = $1 AND external_id = $2 AND content_hash = $3 AND status <> 'failed'",
        &[
            Arg::Long(kb_no),
            Arg::Text(&document.external_id),
            Arg::Bytes(&hash),
            Arg::JsonText(document.metadata.as_ref()),
            Arg::TextOrNull(document.uri.as_deref()),
            Arg::TextOrNull(document.title.as_deref()),
        ],
    )?;
    if unchanged > 0 {
        return Ok(Put::Skipped);
    }
    let added = spi::write_one(
        "INSERT INTO kb.documents AS d
             (kb_no, tenant_id, external_id, uri, title, content_type, content, content_hash, metadata)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, coalesce($9, '{}'))
         ON CONFLICT (kb_no, external_id) DO UPDATE SET uri = coalesce($4, d.uri), title = EXCLUDED.title,
             content_type = EXCLUDED.content_type, content = EXCLUDED.content, source = NULL,
             content_hash = EXCLUDED.content_hash, metadata = coalesce($9, d.metadata), status = 'pending',
             error = NULL, sqlstate = NULL, updated_at = now()
         RETURNING d.xmax = 0",
        &[
            Arg::Long(kb_no),
            Arg::Text(tenant_id),
            Arg::Text(&document.external_id),
            Arg::TextOrNull(document.uri.as_deref()),
            Arg::TextOrNull(document.title.as_deref()),
            Arg::Text(&document.content_type),
            Arg::Text(&document.content),
            Arg::Bytes(&hash),
            Arg::JsonText(document.metadata.as_ref()),
        ],
        |row| row.get::<bool>(0),
    )?;
    Ok(if added == Some(true) { Put::Added } else { Put::Updated })
}

/// Locks what is there of these documents, in the worker's order (by document_id), so that a call over
/// many documents and the worker do not deadlock.
pub fn lock(kb_no: i64, external_ids: &[String]) -> Result<()> {
    spi::execute(
        "SELECT FROM kb.documents WHERE kb_no = $1 AND external_id = ANY ($2)
         ORDER BY document_id FOR NO KEY UPDATE",
        &[Arg::Long(kb_no), Arg::Texts(external_ids)],
    )?;
    Ok(())
}

/// Deletes documents with their chunks, vectors and jobs. The external ids that were there.
pub fn delete(kb_no: i64, external_ids: &[String]) -> Result<Vec<String>> {
    spi::write(
        "DELETE FROM kb.documents WHERE kb_no = $1 AND external_id = ANY ($2) RETURNING external_id",
        &[Arg::Long(kb_no), Arg::Texts(external_ids)],
        |row| row.get(0),
    )
}

/// A document as the worker reads it.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    pub document_id: i64,
    pub kb_no: i64,
    pub tenant_id: String,
    pub external_id: String,
    pub uri: Option<String>,
    pub content_type: String,
    /// As it was put.
    pub raw: String,
    /// Extraction changed it last time: what was put is in the column source.
    pub has_source: bool,
    /// Settings of the live chunks, if there are any.
    pub settings: Option<String>,
    /// The chunks are not of this text.
    pub is_edited: bool,
    pub generation: i64,
}

/// The document of a job, if both are still there and the generation is this one.
pub fn read(kb_no: i64, external_id: &str, generation: i64) -> Result<Option<Stored>> {
    spi::write_one(
        "SELECT d.document_id, d.tenant_id, d.uri, d.content_type, coalesce(d.source, d.content), d.settings,
                d.source IS NOT NULL, d.indexed_hash IS DISTINCT FROM d.content_hash
         FROM kb.documents d JOIN kb.jobs j USING (kb_no, external_id)
         WHERE d.kb_no = $1 AND d.external_id = $2 AND j.generation = $3",
        &[Arg::Long(kb_no), Arg::Text(external_id), Arg::Long(generation)],
        |row| {
            Ok(Stored {
                document_id: row.get(0)?,
                kb_no,
                tenant_id: row.get(1)?,
                external_id: external_id.to_string(),
                uri: row.opt(2)?,
                content_type: row.get(3)?,
                raw: row.get(4)?,
                settings: row.opt(5)?,
                has_source: row.get(6)?,
                is_edited: row.get(7)?,
                generation,
            })
        },
    )
}

/// What [`lock_current`] found.
#[derive(Debug, Default)]
pub struct Locked {
    /// Locked, and their jobs have the given generations.
    pub current: HashSet<i64>,
    /// A transaction that is not over has them, or they are gone.
    pub busy: HashSet<i64>,
}

/// Locks documents whose jobs still have the given generations. It waits for nobody: an edit whose transaction stays
/// open for hours must not stop the others.
pub fn lock_current(keys: &[(i64, i64)]) -> Result<Locked> {
    let (ids, generations): (Vec<i64>, Vec<i64>) = keys.iter().copied().unzip();
    let locked: HashSet<i64> = spi::write(
        "SELECT document_id FROM kb.documents WHERE document_id = ANY ($1)
         ORDER BY document_id FOR NO KEY UPDATE SKIP LOCKED",
        &[Arg::Longs(&ids)],
        |row| row.get::<i64>(0),
    )?
    .into_iter()
    .collect();
    let current = spi::write(
        "SELECT d.document_id FROM unnest($1::bigint[], $2::bigint[]) AS u (document_id, generation)
         JOIN kb.documents d USING (document_id)
         JOIN kb.jobs j ON j.kb_no = d.kb_no AND j.external_id = d.external_id AND j.generation = u.generation",
        &[Arg::Longs(&ids), Arg::Longs(&generations)],
        |row| row.get::<i64>(0),
    )?;
    let current = current.into_iter().filter(|id| locked.contains(id)).collect();
    let busy = ids.into_iter().filter(|id| !locked.contains(id)).collect();
    Ok(Locked { current, busy })
}

/// Locks one document, as [`lock_current`] does; whether it could be.
pub fn lock_by_key(kb_no: i64, external_id: &str) -> Result<bool> {
    let locked = spi::execute(
        "SELECT FROM kb.documents WHERE kb_no = $1 AND external_id = $2 FOR NO KEY UPDATE SKIP LOCKED",
        &[Arg::Long(kb_no), Arg::Text(external_id)],
    )?;
    Ok(locked > 0)
}

/// What extraction found, written with the chunks it led to. `text`: (source, content) where the row
/// must change.
pub fn set_extracted(
    document_id: i64,
    text: Option<(Option<&str>, &str)>,
    title: Option<&str>,
) -> Result<()> {
    match text {
        Some((source, content)) => spi::execute(
            "UPDATE kb.documents SET source = $2, content = $3, title = coalesce(title, $4),
                 indexed_hash = content_hash WHERE document_id = $1",
            &[Arg::Long(document_id), Arg::TextOrNull(source), Arg::Text(content), Arg::TextOrNull(title)],
        )?,
        None => spi::execute(
            "UPDATE kb.documents SET title = coalesce(title, $2), indexed_hash = content_hash
             WHERE document_id = $1",
            &[Arg::Long(document_id), Arg::TextOrNull(title)],
        )?,
    };
    Ok(())
}

/// Marks documents ready and counts their live chunks.
pub fn set_ready(document_ids: &[i64], settings: &str) -> Result<()> {
    spi::execute(
        "UPDATE kb.documents d SET status = 'ready', error = NULL, sqlstate = NULL, attempts = 0, settings = $2,
             processed_at = pg_catalog.clock_timestamp(),
             chunk_count = (SELECT count(*) FROM kb.chunks c JOIN kb.builds b USING (build_no)
                            WHERE c.document_id = d.document_id AND b.state = 'live'),
             token_count = (SELECT coalesce(sum(c.token_count), 0) FROM kb.chunks c JOIN kb.builds b USING (build_no)
                            WHERE c.document_id = d.document_id AND b.state = 'live')
         WHERE document_id = ANY ($1)",
        &[Arg::Longs(document_ids), Arg::Text(settings)],
    )?;
    Ok(())
}

/// Records why a document could not be processed.
pub fn set_failed(kb_no: i64, external_id: &str, error: &str, sqlstate: &str, attempts: i32) -> Result<()> {
    spi::execute(
        "UPDATE kb.documents SET status = 'failed', error = $3, sqlstate = $4, attempts = $5,
             processed_at = pg_catalog.clock_timestamp() WHERE kb_no = $1 AND external_id = $2",
        &[
            Arg::Long(kb_no),
            Arg::Text(external_id),
            Arg::Text(error),
            Arg::Text(sqlstate),
            Arg::Int(attempts),
        ],
    )?;
    Ok(())
}

/// Puts documents back to pending, by status; their external ids.
pub fn reset(kb_no: i64, which: Which, settings: &str, external_id: Option<&str>) -> Result<Vec<String>> {
    let condition = match which {
        Which::All => "true",
        Which::Failed => "status = 'failed'",
        Which::NotUnder => "(status = 'ready' AND settings IS DISTINCT FROM $2)",
        Which::Outdated => "(status <> 'ready' OR settings IS DISTINCT FROM $2)",
    };
    spi::write(
        &format!(
            "UPDATE kb.documents SET status = 'pending', error = NULL, sqlstate = NULL, attempts = 0
             WHERE kb_no = $1 AND {condition} AND ($2 IS NOT NULL) AND ($3 IS NULL OR external_id = $3)
             RETURNING external_id"
        ),
        &[Arg::Long(kb_no), Arg::Text(settings), Arg::TextOrNull(external_id)],
        |row| row.get(0),
    )
}

/// Which documents [`reset`] takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    All,
    Failed,
    /// Not ready, or made under other settings.
    Outdated,
    /// Ready, but made under other settings.
    NotUnder,
}

/// Documents of a knowledge base.
pub fn count(kb_no: i64) -> Result<i64> {
    Ok(spi::write_one("SELECT count(*) FROM kb.documents WHERE kb_no = $1", &[Arg::Long(kb_no)], |row| {
        row.get::<i64>(0)
    })?
    .unwrap_or(0))
}

/// What kb.ingest would take up: documents that are not ready or were made under other settings (or `all`);
/// their number and the length of their texts.
pub fn to_ingest(kb_no: i64, settings: &str, all: bool) -> Result<(i64, i64)> {
    let found = spi::read_one(
        "SELECT count(*), coalesce(sum(pg_catalog.octet_length(coalesce(source, content))), 0)::bigint
         FROM kb.documents WHERE kb_no = $1 AND ($3 OR status <> 'ready' OR settings IS DISTINCT FROM $2)",
        &[Arg::Long(kb_no), Arg::Text(settings), Arg::Bool(all)],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    Ok(found.unwrap_or((0, 0)))
}

/// The ids of some of those, spread over all.
pub fn sample(kb_no: i64, settings: &str, all: bool, limit: i64) -> Result<Vec<i64>> {
    spi::read(
        "SELECT document_id FROM kb.documents
         WHERE kb_no = $1 AND ($3 OR status <> 'ready' OR settings IS DISTINCT FROM $2)
         ORDER BY pg_catalog.md5(document_id::text) LIMIT $4",
        &[Arg::Long(kb_no), Arg::Text(settings), Arg::Bool(all), Arg::Long(limit)],
        |row| row.get(0),
    )
}

/// Content type and text of a document as it was put.
pub fn as_put(document_id: i64) -> Result<Option<(String, String)>> {
    spi::read_one(
        "SELECT content_type, coalesce(source, content) FROM kb.documents WHERE document_id = $1",
        &[Arg::Long(document_id)],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )
}

/// Ready documents that have no chunk in a build, or one without a vector.
pub fn without_vectors(kb_no: i64, build_no: i64, table_name: &str) -> Result<Vec<String>> {
    spi::write(
        &format!(
            "SELECT external_id FROM kb.documents d WHERE kb_no = $1 AND status = 'ready' AND (NOT EXISTS (
                     SELECT FROM kb.chunks c WHERE c.document_id = d.document_id AND c.build_no = $2)
                 OR EXISTS (SELECT FROM kb.chunks c WHERE c.document_id = d.document_id AND c.build_no = $2
                     AND NOT EXISTS (SELECT FROM kb.{} v WHERE v.chunk_id = c.chunk_id AND v.build_no = c.build_no)))",
            spi::quote(table_name)
        ),
        &[Arg::Long(kb_no), Arg::Long(build_no)],
        |row| row.get(0),
    )
}

/// Puts documents back to pending.
pub fn set_pending(kb_no: i64, external_ids: &[String]) -> Result<()> {
    spi::execute(
        "UPDATE kb.documents SET status = 'pending' WHERE kb_no = $1 AND external_id = ANY ($2)",
        &[Arg::Long(kb_no), Arg::Texts(external_ids)],
    )?;
    Ok(())
}

/// Counts the chunks of the live build anew for all documents, after a switch of builds.
pub fn recount(kb_no: i64, build_no: i64) -> Result<()> {
    spi::execute(
        "UPDATE kb.documents d SET chunk_count = c.chunks, token_count = c.tokens
         FROM (SELECT document_id, count(*) AS chunks, sum(token_count) AS tokens
               FROM kb.chunks WHERE build_no = $2 GROUP BY document_id) c
         WHERE d.kb_no = $1 AND c.document_id = d.document_id",
        &[Arg::Long(kb_no), Arg::Long(build_no)],
    )?;
    Ok(())
}
