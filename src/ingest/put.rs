//! The use case behind kb.put_document: check, store, enqueue; the worker does the rest.

use crate::error::{Error, Result};
use crate::ingest::parse;
use crate::model::Json;
use crate::pg::role::as_owner;
use crate::pg::wake;
use crate::settings;
use crate::store::documents::{self, NewDocument, Put};
use crate::store::jobs;
use crate::store::knowledge_bases::{self, KnowledgeBase};

/// Bytes of an external id at most: it must fit an index row.
const MAX_ID_BYTES: usize = 1000;

/// A document as a caller gives it.
#[derive(Debug, Default)]
pub struct Given {
    pub external_id: String,
    pub content: String,
    pub metadata: Option<Json>,
    pub title: Option<String>,
    pub content_type: Option<String>,
    pub uri: Option<String>,
}

/// Everything that can be wrong with a document is said here, before anything is stored.
fn check(given: Given) -> Result<NewDocument> {
    let id = given.external_id;
    if id.trim().is_empty() {
        return Err(Error::Argument { argument: "external_id", problem: "must not be empty".into() });
    }
    if id.len() > MAX_ID_BYTES {
        let problem = format!("it has {} bytes, at most {MAX_ID_BYTES} are taken", id.len());
        return Err(Error::Argument { argument: "external_id", problem });
    }
    parse::check(&given.content, &id, settings::max_document_size())?;
    let content_type =
        parse::ContentType::detect(given.content_type.as_deref(), &id, given.uri.as_deref(), &given.content)?;
    if given.metadata.as_ref().is_some_and(|metadata| !metadata.is_object()) {
        return Err(Error::Argument { argument: "metadata", problem: "must be a JSON object".into() });
    }
    Ok(NewDocument {
        external_id: id,
        content: given.content,
        content_type: content_type.name().to_string(),
        title: given.title,
        uri: given.uri,
        metadata: given.metadata,
    })
}

/// Puts documents, all or none; what happened to each, in order.
pub fn put(kb_id: &str, given: Vec<Given>) -> Result<Vec<(String, Put)>> {
    let kb = knowledge_bases::get_own(kb_id)?;
    let mut documents = Vec::with_capacity(given.len());
    let mut seen = std::collections::HashSet::new();
    for given in given {
        let document = check(given)?;
        if !seen.insert(document.external_id.clone()) {
            return Err(Error::Argument {
                argument: "documents",
                problem: format!("external_id \"{}\" stands twice", document.external_id),
            });
        }
        documents.push(document);
    }
    // As the owner, because writers may not touch the tables themselves; the knowledge base is the caller's own.
    as_owner(|| {
        let ids: Vec<String> = documents.iter().map(|document| document.external_id.clone()).collect();
        documents::lock(kb.kb_no, &ids)?;
        let mut results = Vec::with_capacity(documents.len());
        let mut changed = Vec::new();
        for document in documents {
            let put = documents::put(kb.kb_no, &kb.tenant_id, &document)?;
            if put != Put::Skipped {
                changed.push(document.external_id.clone());
            }
            results.push((document.external_id, put));
        }
        enqueue(&kb, &changed)?;
        Ok(results)
    })
}

/// Enqueues edits, as the owner, and has the worker woken at commit.
fn enqueue(kb: &KnowledgeBase, external_ids: &[String]) -> Result<()> {
    if external_ids.is_empty() {
        return Ok(());
    }
    jobs::enqueue(kb.kb_no, &kb.tenant_id, external_ids, jobs::LIVE, None)?;
    wake::at_commit(kb.kb_no);
    Ok(())
}

/// Deletes documents; for each id in order whether it was there.
pub fn delete(kb_id: &str, external_ids: &[String]) -> Result<Vec<(String, bool)>> {
    let kb = knowledge_bases::get_own(kb_id)?;
    let deleted = as_owner(|| {
        documents::lock(kb.kb_no, external_ids)?;
        documents::delete(kb.kb_no, external_ids)
    })?;
    Ok(external_ids.iter().map(|id| (id.clone(), deleted.contains(id))).collect())
}

/// Puts failed documents back into the queue; how many.
pub fn retry(kb_id: &str, external_id: Option<&str>) -> Result<i64> {
    let kb = knowledge_bases::get_own(kb_id)?;
    as_owner(|| {
        let ids = documents::reset(kb.kb_no, documents::Which::Failed, "", external_id)?;
        enqueue(&kb, &ids)?;
        Ok(ids.len() as i64)
    })
}
