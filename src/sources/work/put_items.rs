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
use serde_json::Value;

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
    let content = read_of(item)?;
    let (has_title, has_uri) = content
        .described
        .as_ref()
        .map_or((false, false), |described| (described.has_title, described.has_uri));
    let uri = run.reader.uri(&item.path);
    let given = given(&item.external_id, &item.path, uri, &run.config.metadata, content)?;
    let document = new_document::check(given)?;
    Ok(NewDocument { title_is_given: has_title, uri_is_given: has_uri, ..document })
}

/// What was read of an item, or why that cannot be a document.
fn read_of(item: &ReadItem) -> Result<Found> {
    let external_id = item.external_id.clone();
    match &item.content {
        reader::Content::Read(found) => Ok(found.clone()),
        reader::Content::TooLarge(size) => {
            Err(Error::DocumentTooLarge { external_id, size: *size, limit: settings::max_document_size() })
        }
        reader::Content::Unreadable(problem) => {
            Err(Error::Document { external_id, problem: problem.clone() })
        }
        reader::Content::Gone | reader::Content::Unchanged => {
            Err(Error::Internal("an item without content was put".into()))
        }
    }
}

/// The document of what was read. `metadata`: what all documents of the source have.
pub fn given(
    external_id: &str,
    path: &str,
    uri: String,
    metadata: &Value,
    found: Found,
) -> Result<GivenDocument> {
    let external_id = external_id.to_string();
    let common = metadata.as_object().filter(|common| !common.is_empty());
    let common = common.map(|common| Json::new(Value::Object(common.clone()).to_string()));
    let Found { bytes, content_type, name, described, .. } = found;
    if let Some(described) = described {
        let text = String::from_utf8(bytes).map_err(|error| Error::Internal(error.to_string()))?;
        return Ok(GivenDocument {
            metadata: merged(common, described.metadata).map_err(|problem| Error::Document {
                external_id: external_id.clone(),
                problem: format!("metadata: {problem}"),
            })?,
            external_id,
            content: Content::Text(text),
            title: described.title,
            content_type,
            uri: described.uri,
            chunking: None,
        });
    }
    let name = name.unwrap_or_else(|| path.rsplit('/').next().unwrap_or_default().to_string());
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
    Ok(GivenDocument {
        external_id,
        content,
        metadata: common,
        title: None,
        content_type,
        uri: Some(uri),
        chunking: None,
    })
}

/// The metadata that all documents of a source have, and that of one, which has precedence.
fn merged(common: Option<Json>, own: Option<Json>) -> Result<Option<Json>, String> {
    own.as_ref().map_or(Ok(()), Json::check)?;
    let (Some(common), Some(own)) = (&common, &own) else { return Ok(own.or(common)) };
    let own = own.members().ok_or("must be a JSON object")?;
    let mut all = common.members().unwrap_or_default();
    all.retain(|(key, _)| own.iter().all(|(other, _)| other != key));
    all.extend(own);
    let all: Vec<(&str, &Json)> = all.iter().map(|(key, value)| (key.as_str(), value)).collect();
    Ok(Some(Json::object(&all)))
}
