//! Puts what was read of a source, or lists it as failed, in the transaction of the caller.

use super::super::reader;
use super::super::reader::Found;
use super::super::sql::items;
use super::Run;
use crate::builds::runs::SourceCounts;
use crate::documents::new_document;
use crate::documents::new_document::{Content, GivenDocument};
use crate::documents::new_documents;
use crate::documents::new_documents::NewDocument;
use crate::jobs::queue;
use crate::jobs::queue::Subject;
use crate::pg::wake;
use crate::settings;
use crate::tenants::quota::Charge;
use kb_text::parse::ContentType;
use kb_types::error::{Error, Result};
use kb_types::row_states::{Priority, PutStatus};
use kb_types::{Json, sizes};

/// What kb.sources and the run say if documents of others have the ids.
const TAKEN: &str = "documents that do not come from this source have the names of its files as their external_id, and remain unchanged";

/// An item that was read.
pub struct ReadItem {
    pub external_id: String,
    pub path: String,
    pub content: reader::Content,
}

/// Something that cannot become a document.
#[derive(Clone)]
pub struct Unreadable {
    pub external_id: String,
    pub error: Error,
}

/// What became of some files.
#[derive(Default)]
pub struct Put {
    pub counts: SourceCounts,
    pub has_moved: bool,
    pub was_locked: bool,
    /// How many could not be put. They are counted when the run ends.
    pub failed: i64,
    pub problem: Option<String>,
    /// Items that no longer exist.
    pub gone: Vec<String>,
}

pub fn put(run: &Run, read: &[ReadItem]) -> Result<Put> {
    let source = &run.source;
    let mut put = Put::default();
    let ids: Vec<String> = read.iter().map(|item| item.external_id.clone()).collect();
    let mut charge = Charge::begin(&source.tenant_id, source.kb_no, false)?;
    let locked = items::lock(source, &ids)?;
    charge.as_mut().map_or(Ok(()), |charge| charge.look(&source.tenant_id, &ids))?;
    let (mut versions, mut changed, mut unreadable) = ((Vec::new(), Vec::new()), Vec::new(), Vec::new());
    let mut updated = Vec::new();
    for item in read {
        let id = &item.external_id;
        if locked.contains(id) {
            put.was_locked = true;
            continue;
        }
        match &item.content {
            reader::Content::Gone => {
                put.gone.push(id.clone());
                continue;
            }
            reader::Content::Unchanged => continue,
            _ => {}
        }
        let document = match document(run, item) {
            Ok(document) => document,
            Err(error) => {
                unreadable.push(Unreadable { external_id: id.clone(), error });
                continue;
            }
        };
        if let Some(charge) = &mut charge
            && let Err(error) = document.charge(charge)
        {
            unreadable.push(Unreadable { external_id: id.clone(), error });
            continue;
        }
        let status = new_documents::put(&source.place(), &document)?;
        match status {
            None => {
                put.failed += 1;
                put.counts.scanned += 1;
                put.counts.skipped += 1;
                put.problem = Some(TAKEN.into());
                continue;
            }
            Some(PutStatus::Added) => put.counts.scanned += 1,
            Some(PutStatus::Updated) => updated.push(id.clone()),
            Some(PutStatus::Skipped) => {}
        }
        if status != Some(PutStatus::Skipped) {
            put.counts.bytes += document.size();
            changed.push(Subject { tenant_id: source.tenant_id.clone(), name: id.clone(), source_no: None });
        }
        if let reader::Content::Read(found) = &item.content {
            versions.0.push(id.clone());
            versions.1.push(found.version.clone());
        }
    }
    charge.map_or(Ok(()), Charge::book)?;
    items::set_versions(source, &versions.0, &versions.1)?;
    put.has_moved = !versions.0.is_empty();
    if let Some(run_no) = run.job.run_no {
        // Those that wait are counted already.
        let waiting = items::waiting(source, &updated, run_no)?;
        put.counts.skipped -= updated.iter().filter(|id| !waiting.contains(*id)).count() as i64;
    }
    if !changed.is_empty() {
        queue::enqueue(source.kb_no, &changed, Priority::Backfill, run.job.run_no)?;
        wake::at_commit(source.kb_no);
    }
    put.failed += unreadable.len() as i64;
    let failed = fail(run, &unreadable)?;
    put.counts.scanned += failed.counts.scanned;
    put.counts.skipped += failed.counts.skipped;
    put.was_locked |= failed.was_locked;
    put.problem = put.problem.or(failed.problem);
    Ok(put)
}

/// Lists documents as failed. One that there is not yet has no text; one that there is keeps what it has.
pub fn fail(run: &Run, unreadable: &[Unreadable]) -> Result<Put> {
    let source = &run.source;
    let mut put = Put::default();
    if unreadable.is_empty() {
        return Ok(put);
    }
    let ids: Vec<String> = unreadable.iter().map(|item| item.external_id.clone()).collect();
    let locked = items::lock(source, &ids)?;
    let known = items::known(source, &ids)?;
    for Unreadable { external_id, error } in unreadable {
        if locked.contains(external_id) {
            put.was_locked = true;
            continue;
        }
        match known.iter().find(|known| known.external_id == *external_id) {
            Some(known) if !known.is_own => {
                put.problem = Some(TAKEN.into());
                put.counts.scanned += 1;
                put.counts.skipped += 1;
                continue;
            }
            Some(_) => {}
            None => {
                new_documents::put(&source.place(), &NewDocument::without_text(external_id))?;
                put.counts.scanned += 1;
                put.counts.skipped += 1;
            }
        }
        let hint = error.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
        let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
        let text = format!("{error}{detail}{hint}");
        items::set_failed(source, external_id, sizes::cut(&text, sizes::MESSAGE), error.sqlstate())?;
    }
    queue::delete(source.kb_no, &source.tenant_id, &ids)?;
    Ok(put)
}

/// The document of an item.
fn document(run: &Run, item: &ReadItem) -> Result<NewDocument> {
    let external_id = item.external_id.clone();
    let found = match &item.content {
        reader::Content::Read(found) => found.clone(),
        reader::Content::TooLarge(size) => {
            return Err(Error::DocumentTooLarge {
                external_id,
                size: *size,
                limit: settings::max_document_size(),
            });
        }
        reader::Content::Unreadable(problem) => {
            return Err(Error::Document { external_id, problem: problem.clone() });
        }
        reader::Content::Gone | reader::Content::Unchanged => {
            return Err(Error::Internal("an item without content was put".into()));
        }
    };
    let end = || item.path.rsplit('/').next().unwrap_or_default().to_string();
    let Found { bytes, content_type, .. } = found;
    let name = found.name.unwrap_or_else(end);
    // Text of a type that is known by its claim or its ending needs no other program.
    let text_type = match &content_type {
        Some(content_type) => ContentType::parse(content_type),
        None => ContentType::from_extension(&name),
    };
    // These formats can look like text, whatever is claimed.
    let is_other = [&b"%PDF-"[..], b"{\\rtf"].iter().any(|begin| bytes.starts_with(begin));
    let content = match text_type.is_some() && !is_other && std::str::from_utf8(&bytes).is_ok() {
        true => Content::Bytes(bytes),
        false => Content::File { bytes, name },
    };
    let metadata = &run.config.metadata;
    let has_metadata = metadata.as_object().is_some_and(|metadata| !metadata.is_empty());
    new_document::check(GivenDocument {
        external_id,
        content,
        metadata: has_metadata.then(|| Json::new(metadata.to_string())),
        title: None,
        content_type,
        uri: Some(run.reader.uri(&item.path)),
    })
}
