//! kb.documents: reads, locks, deletes and marks documents. new_documents.rs puts them.
//!
//! A user's call locks documents in order of document_id ([`lock`]), inserts new ones in order of
//! external_id, and then locks what belongs to them: chunks, then jobs. The worker locks in the same order
//! and skips what is locked ([`lock_current`]).

use crate::documents::sql::new_documents::GIVEN;
use crate::filters::filter::condition;
use crate::jobs::queue::{Job, Subject};
use crate::pg::row::from_row;
use crate::pg::setting;
use crate::pg::spi::{self, Arg, FromRow, Row};
use crate::pg::statement_arguments::Arguments;
use crate::sql::{BY_INDEX, BY_INDEX_UNPLANNED};
use kb_text::chunk_settings::Chunking;
use kb_types::error::Result;
use kb_types::extraction::Extraction;
use kb_types::{Filter, Json};
use serde_json::Value;
use std::collections::HashSet;

/// Locks those of these documents that exist, in the worker's order (by document_id), so that a call over
/// many documents and the worker do not deadlock. Returns their document_ids.
///
/// Each id is looked up on its own: a plan for all of them that was made while the table was empty would read
/// the whole knowledge base.
pub fn lock(kb_no: i64, tenant_id: &str, external_ids: &[String]) -> Result<Vec<i64>> {
    let sql = "SELECT l.document_id FROM (
             SELECT (SELECT d.document_id FROM kb.documents d
                     WHERE d.kb_no = $1 AND d.tenant_id = $2 AND d.external_id = u.id) AS document_id
             FROM pg_catalog.unnest($3::text[]) AS u (id) ORDER BY 1) s
         CROSS JOIN LATERAL (
             SELECT d.document_id FROM kb.documents d WHERE d.document_id = s.document_id FOR NO KEY UPDATE) l";
    let arguments = [Arg::Long(kb_no), Arg::Text(tenant_id), Arg::Texts(external_ids)];
    // Planning takes as long as locking a hundred documents.
    setting::with(BY_INDEX_UNPLANNED, || spi::write(sql, &arguments, Row::only))
}

from_row! {
    /// A document that is locked.
    #[derive(Debug, Clone, PartialEq)]
    pub struct LockedDocument {
        pub document_id: i64,
        pub external_id: String,
        /// Whether it was put by itself: it comes from no source, and from within no file.
        pub was_put: bool,
    }
}

/// Locks those of these documents that exist, and all that were put and have an external_id from `start` (on
/// to before `end`), in the order of [`lock`]. External_ids are compared by code points.
pub fn lock_scope(
    kb_no: i64,
    tenant_id: &str,
    start: &str,
    end: Option<&str>,
    external_ids: &[String],
) -> Result<Vec<LockedDocument>> {
    let before_end = if end.is_some() { "AND d.external_id ~<~ $4" } else { "AND $4 IS NULL" };
    let sql = format!(
        "SELECT l.document_id, l.external_id, l.was_put FROM (
             SELECT (SELECT d.document_id FROM kb.documents d
                     WHERE d.kb_no = $1 AND d.tenant_id = $2 AND d.external_id = u.id) AS document_id
             FROM pg_catalog.unnest($5::text[]) AS u (id)
             UNION
             SELECT d.document_id FROM kb.documents d
             WHERE d.kb_no = $1 AND d.tenant_id = $2 AND d.external_id ~>=~ $3 {before_end}
               AND d.source_no IS NULL AND d.part_of IS NULL
             ORDER BY 1) s
         CROSS JOIN LATERAL (
             SELECT d.document_id, d.external_id, d.source_no IS NULL AND d.part_of IS NULL AS was_put
             FROM kb.documents d WHERE d.document_id = s.document_id FOR NO KEY UPDATE) l"
    );
    let arguments = [
        Arg::Long(kb_no),
        Arg::Text(tenant_id),
        Arg::Text(start),
        Arg::TextOrNull(end),
        Arg::Texts(external_ids),
    ];
    setting::with(BY_INDEX_UNPLANNED, || spi::write(&sql, &arguments, LockedDocument::from_row))
}

/// Locks the documents of a tenant that pass a filter, in the order of [`lock`]. Returns their document_ids.
pub fn lock_matching(kb_no: i64, tenant_id: &str, filter: &Filter) -> Result<Vec<i64>> {
    let mut arguments = Arguments::default();
    let (kb_no, tenant_id) = (arguments.add(Arg::Long(kb_no)), arguments.add(Arg::Text(tenant_id)));
    let condition = condition(filter, &mut arguments);
    // The settings keep the planner from using the index on the metadata of all tenants, which only bitmap
    // scans can read: its cost would depend on what other tenants have.
    setting::with(&[(c"enable_seqscan", c"off"), (c"enable_bitmapscan", c"off")], || {
        spi::write(
            &format!(
                "SELECT d.document_id FROM kb.documents d
                 WHERE d.kb_no = {kb_no} AND d.tenant_id = {tenant_id} AND {condition}
                 ORDER BY d.document_id FOR NO KEY UPDATE"
            ),
            &arguments.all(),
            Row::only,
        )
    })
}

/// Deletes locked documents with their chunks and vectors. Returns their external_ids.
pub fn delete(document_ids: &[i64]) -> Result<Vec<String>> {
    setting::with(BY_INDEX, || {
        spi::write(
            "DELETE FROM kb.documents WHERE document_id = ANY ($1) RETURNING external_id",
            &[Arg::Longs(document_ids)],
            Row::only,
        )
    })
}

/// A document in the form that the worker reads.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    pub document_id: i64,
    pub content_type: String,
    /// The name of the file, if it was put as one.
    pub file_name: Option<String>,
    /// The bytes that were put.
    pub original: Vec<u8>,
    /// Whether these are in the column original, because the last extraction changed them, or because they
    /// were no text.
    pub has_original: bool,
    /// The settings of the live chunks, if there are any; '' if they were cut by another chunking of its own.
    pub settings: Option<String>,
    /// Whether the chunks belong to another text.
    pub is_edited: bool,
    pub title: Option<String>,
    /// The answers of models about it; see [`set_answers`].
    pub answers: Option<Vec<u8>>,
    /// How it is cut, if not as the knowledge base says.
    pub chunking: Option<Chunking>,
    /// The charset that was declared when the text of the file was found last.
    pub charset: Option<String>,
}

/// The document of a job, if both still exist and the generation is this one.
pub fn read(job: &Job) -> Result<Option<Stored>> {
    spi::write_one(
        "SELECT d.document_id, d.content_type, d.original, CASE WHEN d.original IS NULL THEN d.content END AS content,
                d.original IS NOT NULL AS has_original, d.settings, d.indexed_hash IS DISTINCT FROM d.content_hash AS is_edited,
                d.title, d.answers, d.file_name, d.chunking,
                CASE WHEN d.file_metadata ->> 'charset_by' = 'declaration' THEN d.file_metadata ->> 'charset' END AS charset
         FROM kb.documents d
         WHERE d.kb_no = $1 AND d.tenant_id = $2 AND d.external_id = $3
           AND EXISTS (SELECT FROM kb.jobs j WHERE j.job_no = $4 AND j.generation = $5)",
        &[
            Arg::Long(job.kb_no),
            Arg::Text(&job.tenant_id),
            Arg::Text(&job.external_id),
            Arg::Long(job.job_no),
            Arg::Long(job.generation),
        ],
        |row| {
            Ok(Stored {
                document_id: row.get("document_id")?,
                content_type: row.get("content_type")?,
                original: original(row)?,
                has_original: row.get("has_original")?,
                settings: row.get("settings")?,
                is_edited: row.get("is_edited")?,
                title: row.get("title")?,
                answers: row.get("answers")?,
                file_name: row.get("file_name")?,
                chunking: row.get("chunking")?,
                charset: row.get("charset")?,
            })
        },
    )
}

/// What was put: the column original, else the text.
fn original(row: &Row) -> Result<Vec<u8>> {
    match row.get::<Option<Vec<u8>>>("original")? {
        Some(original) => Ok(original),
        None => Ok(row.get::<String>("content")?.into_bytes()),
    }
}

/// The result of [`lock_current`].
#[derive(Debug, Default)]
pub struct Locked {
    /// These are locked, and their jobs have the given generations.
    pub current: HashSet<i64>,
    /// An open transaction has these locked, or they no longer exist.
    pub busy: HashSet<i64>,
}

/// Locks documents whose jobs still have the given generations. It never waits: an edit whose transaction
/// stays open for hours must not delay other documents.
pub fn lock_current(keys: &[(i64, i64)]) -> Result<Locked> {
    let (ids, generations): (Vec<i64>, Vec<i64>) = keys.iter().copied().unzip();
    let lock = "SELECT document_id FROM kb.documents WHERE document_id = ANY ($1)
                ORDER BY document_id FOR NO KEY UPDATE SKIP LOCKED";
    let locked = setting::with(BY_INDEX_UNPLANNED, || spi::write(lock, &[Arg::Longs(&ids)], Row::only))?;
    let locked: HashSet<i64> = locked.into_iter().collect();
    // One plan is kept, from document to job, which must not depend on the number of jobs.
    let with_job = "SELECT d.document_id FROM kb.documents d
         WHERE d.document_id = ANY ($1)
           AND (SELECT j.generation FROM kb.jobs j
                WHERE j.kb_no = d.kb_no AND j.tenant_id = d.tenant_id AND j.kind = 'document' AND j.subject = d.external_id)
               = ($2::bigint[])[pg_catalog.array_position($1::bigint[], d.document_id)]";
    let arguments = [Arg::Longs(&ids), Arg::Longs(&generations)];
    let read = || spi::write(with_job, &arguments, Row::only::<i64>);
    let current = setting::with(BY_INDEX_UNPLANNED, read)?;
    let current = current.into_iter().filter(|id| locked.contains(id)).collect();
    let busy = ids.into_iter().filter(|id| !locked.contains(id)).collect();
    Ok(Locked { current, busy })
}

/// Locks a job's document as [`lock_current`] does. Returns whether it could.
pub fn lock_by_key(job: &Job) -> Result<bool> {
    let locked = spi::execute(
        "SELECT FROM kb.documents WHERE kb_no = $1 AND tenant_id = $2 AND external_id = $3
         FOR NO KEY UPDATE SKIP LOCKED",
        &[Arg::Long(job.kb_no), Arg::Text(&job.tenant_id), Arg::Text(&job.external_id)],
    )?;
    Ok(locked > 0)
}

/// Records the result of extraction, in the transaction that writes the chunks. `text` is (original, content)
/// if the row must change.
pub fn set_extracted(
    document_id: i64,
    text: Option<(Option<&[u8]>, &str)>,
    title: Option<&str>,
) -> Result<()> {
    let (original, content) = text.map_or((None, None), |(original, content)| (original, Some(content)));
    spi::execute(
        "UPDATE kb.documents SET original = CASE WHEN $3 IS NULL THEN original ELSE $2 END,
             content = coalesce($3, content), title = coalesce(title, $4), indexed_hash = content_hash
         WHERE document_id = $1",
        &[
            Arg::Long(document_id),
            Arg::BytesOrNull(original),
            Arg::TextOrNull(content),
            Arg::TextOrNull(title),
        ],
    )?;
    Ok(())
}

/// Records what `extractor` found in a file, in the transaction that writes the chunks. `kept_title` is not
/// replaced by what the file says. Metadata that the caller has given has precedence over that of the file,
/// and of the latter, only keys are kept that the knowledge base allows.
pub fn set_extracted_file(
    document_id: i64,
    content: &str,
    title: Option<&str>,
    extraction: &Extraction,
    extractor: &str,
) -> Result<()> {
    let metadata = Json::new(Value::Object(extraction.metadata.clone()).to_string());
    spi::execute(
        &format!("WITH found AS (
             SELECT coalesce(pg_catalog.jsonb_object_agg(m.key, m.value), '{{}}') AS metadata
             FROM kb.documents d JOIN kb.knowledge_bases k USING (kb_no) CROSS JOIN pg_catalog.jsonb_each($6) m
             WHERE d.document_id = $1
               AND (coalesce(k.retrieval -> 'allowed_metadata_keys', '[]') = '[]'
                    OR pg_catalog.jsonb_exists(k.retrieval -> 'allowed_metadata_keys', m.key))),
         given AS (SELECT {GIVEN} AS metadata FROM kb.documents d WHERE document_id = $1)
         UPDATE kb.documents d SET content = $2, title = coalesce(d.title, $3), indexed_hash = content_hash,
             content_type = $4, extractor = $5, file_metadata = found.metadata, metadata = found.metadata || given.metadata
         FROM found, given WHERE document_id = $1"),
        &[
            Arg::Long(document_id),
            Arg::Text(content),
            Arg::TextOrNull(title),
            Arg::Text(&extraction.content_type),
            Arg::Text(extractor),
            Arg::JsonText(Some(&metadata)),
        ],
    )?;
    Ok(())
}

/// Does what [`set_extracted`] does, for documents whose rows have their text and title already.
pub fn set_extracted_as_they_are(document_ids: &[i64]) -> Result<()> {
    if document_ids.is_empty() {
        return Ok(());
    }
    let sql = "UPDATE kb.documents SET indexed_hash = content_hash WHERE document_id = ANY ($1)";
    setting::with(BY_INDEX_UNPLANNED, || spi::execute(sql, &[Arg::Longs(document_ids)]))?;
    Ok(())
}

/// Keeps the answers of models about a document that were needed to cut it.
pub fn set_answers(document_id: i64, answers: Option<&[u8]>) -> Result<()> {
    spi::execute(
        "UPDATE kb.documents SET answers = $2 WHERE document_id = $1",
        &[Arg::Long(document_id), Arg::BytesOrNull(answers)],
    )?;
    Ok(())
}

from_row! {
    /// A document that is ready, and the number of its live chunks.
    pub struct Ready {
        pub document_id: i64,
        pub chunk_count: i32,
    }
}

/// Marks documents ready and counts their live chunks.
pub fn set_ready(document_ids: &[i64], settings: &str) -> Result<Vec<Ready>> {
    // The plan goes from a document's chunks of each build to the build, however many builds are live.
    let sql = "UPDATE kb.documents d SET status = 'ready', error = NULL, sqlstate = NULL, attempts = 0, settings = $2,
             processed_at = pg_catalog.clock_timestamp(),
             (chunk_count, token_count) = (
                 SELECT coalesce(sum(c.chunks), 0), coalesce(sum(c.tokens), 0)
                 FROM (SELECT c.build_no, count(*) AS chunks, sum(c.token_count) AS tokens FROM kb.chunks c
                       WHERE c.document_id = d.document_id GROUP BY c.build_no) c
                 WHERE (SELECT b.state FROM kb.builds b WHERE b.build_no = c.build_no) = 'live')
         WHERE document_id = ANY ($1) RETURNING document_id, chunk_count";
    let arguments = [Arg::Longs(document_ids), Arg::Text(settings)];
    setting::with(BY_INDEX_UNPLANNED, || spi::write(sql, &arguments, Ready::from_row))
}

/// Records why a job's document could not be processed.
pub fn set_failed(job: &Job, error: &str, sqlstate: &str) -> Result<()> {
    spi::execute(
        "UPDATE kb.documents SET status = 'failed', error = $4, sqlstate = $5, attempts = $6,
             processed_at = pg_catalog.clock_timestamp() WHERE kb_no = $1 AND tenant_id = $2 AND external_id = $3",
        &[
            Arg::Long(job.kb_no),
            Arg::Text(&job.tenant_id),
            Arg::Text(&job.external_id),
            Arg::Text(error),
            Arg::Text(sqlstate),
            Arg::Int(job.attempts),
        ],
    )?;
    Ok(())
}

/// The condition for documents that kb.ingest processes: they are not ready, were made under other settings
/// than $2, or are files that another version of kb-extract or of an extractor has read.
const OUTDATED: &str = concat!(
    "(status <> 'ready' OR settings IS DISTINCT FROM $2 OR extractor <> 'kb-extract ",
    env!("CARGO_PKG_VERSION"),
    "' AND NOT EXISTS (SELECT FROM kb.extractors e WHERE e.version = documents.extractor))"
);

/// The attached table of a document d, whose row must be read first. What other sources have is read by their
/// runs.
const TABLE: &str = "(SELECT s.source_no FROM kb.sources s WHERE s.source_no = d.source_no AND s.type = 'table') AS source_no";

/// The condition for documents that their source could not read. Only a run of the source can process them.
const UNREADABLE: &str = "(status = 'failed' AND version IS NULL AND source_no IS NOT NULL AND EXISTS (
    SELECT FROM kb.sources s WHERE s.source_no = documents.source_no AND s.type <> 'table'))";

/// Sets documents of all tenants back to pending, selected by status. Locks them in the order of [`lock`].
pub fn reset(kb_no: i64, which: Which, settings: &str) -> Result<Vec<Subject>> {
    let condition = match which {
        Which::All => "true",
        Which::MadeUnderOthers => {
            "(settings IS DISTINCT FROM $2 AND (status = 'ready' OR status = 'pending' AND settings IS NOT NULL))"
        }
        Which::Outdated => OUTDATED,
    };
    // A new build gets the text that such a document had when it could be read.
    let is_left = if which == Which::All { "original IS NULL AND content = ''" } else { "true" };
    spi::write(
        &format!(
            "UPDATE kb.documents d SET status = 'pending', error = NULL, sqlstate = NULL, attempts = 0
             FROM (SELECT document_id FROM kb.documents WHERE kb_no = $1 AND {condition} AND NOT ({UNREADABLE} AND {is_left}) AND ($2 IS NOT NULL)
                   ORDER BY document_id FOR NO KEY UPDATE) l
             WHERE d.document_id = l.document_id RETURNING d.tenant_id, d.external_id AS name, {TABLE}"
        ),
        &[Arg::Long(kb_no), Arg::Text(settings)],
        Subject::from_row,
    )
}

/// Sets failed documents of a tenant, or the named one, back to pending. Locks them in the order of [`lock`].
pub fn reset_failed(kb_no: i64, tenant_id: &str, external_id: Option<&str>) -> Result<Vec<Subject>> {
    spi::write(
        &format!(
            "UPDATE kb.documents d SET status = 'pending', error = NULL, sqlstate = NULL, attempts = 0
             FROM (SELECT document_id FROM kb.documents
                   WHERE kb_no = $1 AND tenant_id = $2 AND status = 'failed' AND error IS NOT NULL
                     AND ($3 IS NULL OR external_id = $3) AND NOT {UNREADABLE}
                   ORDER BY document_id FOR NO KEY UPDATE) l
             WHERE d.document_id = l.document_id RETURNING d.tenant_id, d.external_id AS name, {TABLE}"
        ),
        &[Arg::Long(kb_no), Arg::Text(tenant_id), Arg::TextOrNull(external_id)],
        Subject::from_row,
    )
}

/// The documents that [`reset`] takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    All,
    /// Not ready, or made under other settings.
    Outdated,
    /// Those with chunks that were made under other settings, and that have not failed.
    MadeUnderOthers,
}

/// The number of failed documents that the caller can see, and the number of knowledge bases that have one.
/// Works on a standby.
pub fn failed() -> Result<(i64, i64)> {
    let sql = "SELECT count(*) AS documents, count(DISTINCT kb_no) AS kbs FROM kb.documents WHERE status = 'failed' AND error IS NOT NULL";
    Ok(spi::read_one(sql, &[], |row| Ok((row.get("documents")?, row.get("kbs")?)))?.unwrap_or((0, 0)))
}

/// The number of documents of a knowledge base.
pub fn count(kb_no: i64) -> Result<i64> {
    let sql = "SELECT count(*) FROM kb.documents WHERE kb_no = $1";
    spi::write_value(sql, &[Arg::Long(kb_no)])
}

/// Whether a knowledge base has documents of any tenant, under the caller's snapshot. Must run as the owner.
pub fn any(kb_no: i64) -> Result<bool> {
    let sql = "SELECT EXISTS (SELECT FROM kb.documents WHERE kb_no = $1)";
    spi::read_value(sql, &[Arg::Long(kb_no)])
}

/// The number of the documents that kb.ingest would process, and the length of their texts: documents that
/// are not ready or were made under other settings (or `all`).
pub fn to_ingest(kb_no: i64, settings: &str, all: bool) -> Result<(i64, i64)> {
    let found = spi::read_one(
        &format!("SELECT count(*) AS documents,
             coalesce(sum(coalesce(pg_catalog.octet_length(original), pg_catalog.octet_length(content))), 0)::bigint AS bytes
         FROM kb.documents WHERE kb_no = $1 AND ($3 OR {OUTDATED})"),
        &[Arg::Long(kb_no), Arg::Text(settings), Arg::Bool(all)],
        |row| Ok((row.get("documents")?, row.get("bytes")?)),
    )?;
    Ok(found.unwrap_or((0, 0)))
}

/// The ids of some of these documents, spread over all of them.
pub fn sample(kb_no: i64, settings: &str, all: bool, limit: i64) -> Result<Vec<i64>> {
    spi::read(
        &format!(
            "SELECT document_id FROM kb.documents
         WHERE kb_no = $1 AND ($3 OR {OUTDATED})
         ORDER BY pg_catalog.md5(document_id::text) LIMIT $4"
        ),
        &[Arg::Long(kb_no), Arg::Text(settings), Arg::Bool(all), Arg::Long(limit)],
        Row::only,
    )
}

/// The content type of a document, and the bytes that were put. For a file, its text if that is known, as
/// plain text.
pub fn original_of(document_id: i64) -> Result<Option<(String, Vec<u8>)>> {
    spi::read_one(
        "SELECT CASE WHEN file_name IS NULL THEN content_type ELSE 'text/markdown' END AS content_type,
             CASE WHEN file_name IS NULL THEN original WHEN content IS NULL THEN '' END AS original,
             CASE WHEN file_name IS NOT NULL OR original IS NULL THEN content END AS content
         FROM kb.documents WHERE document_id = $1",
        &[Arg::Long(document_id)],
        |row| Ok((row.get("content_type")?, original(row)?)),
    )
}

/// Sets documents back to pending.
pub fn set_pending(document_ids: &[i64]) -> Result<Vec<Subject>> {
    spi::write(
        &format!(
            "UPDATE kb.documents d SET status = 'pending' WHERE document_id = ANY ($1)
             RETURNING tenant_id, external_id AS name, {TABLE}"
        ),
        &[Arg::Longs(document_ids)],
        Subject::from_row,
    )
}

/// Counts the chunks of the live build again for all documents, after a switch of builds.
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

/// The external_id of one of these documents that comes from a source, if any does, and the name of the
/// source; a table has none.
pub fn any_of_a_source(document_ids: &[i64]) -> Result<Option<(String, Option<String>)>> {
    spi::write_one(
        "SELECT d.external_id, (SELECT s.name FROM kb.sources s WHERE s.source_no = d.source_no) AS source
         FROM kb.documents d WHERE d.document_id = ANY ($1) AND d.source_no IS NOT NULL LIMIT 1",
        &[Arg::Longs(document_ids)],
        |row| Ok((row.get("external_id")?, row.get("source")?)),
    )
}

/// The name of the source that a document comes from; None: there is none, or it is a table.
pub fn source_of(kb_no: i64, tenant_id: &str, external_id: &str) -> Result<Option<String>> {
    let name = spi::write_one(
        "SELECT (SELECT s.name FROM kb.sources s WHERE s.source_no = d.source_no) FROM kb.documents d
         WHERE d.kb_no = $1 AND d.tenant_id = $2 AND d.external_id = $3",
        &[Arg::Long(kb_no), Arg::Text(tenant_id), Arg::Text(external_id)],
        Row::only,
    )?;
    Ok(name.flatten())
}
