//! kb.put_document and kb.put_documents: check, store, enqueue; the worker does the rest.

use crate::catalog::enqueue;
use crate::error::{Error, Result};
use crate::ingest::parse;
use crate::model::states::PutStatus;
use crate::model::{Json, id};
use crate::pg::role::as_owner;
use crate::settings;
use crate::store::documents::{self, NewDocument};
use crate::store::jobs::Subject;
use crate::store::knowledge_bases;
use std::collections::{HashMap, HashSet};

/// The content of a document, as a caller gives it.
#[derive(Debug)]
pub enum Content {
    Text(String),
    Bytes(Vec<u8>),
}

/// A document as a caller gives it.
#[derive(Debug)]
pub struct Given {
    pub external_id: String,
    pub content: Content,
    pub metadata: Option<Json>,
    pub title: Option<String>,
    pub content_type: Option<String>,
    pub uri: Option<String>,
}

/// Checks a document completely, before anything is stored.
fn check(given: Given) -> Result<NewDocument> {
    let id = given.external_id;
    if let Some(problem) = id::problem(&id, id::MAX_EXTERNAL_BYTES) {
        return Err(Error::Argument { argument: "external_id", problem });
    }
    let (original, content) = match given.content {
        Content::Text(text) => (None, text),
        Content::Bytes(bytes) => {
            let text = parse::decode(&bytes, &id)?;
            ((text.as_bytes() != bytes).then_some(bytes), text)
        }
    };
    parse::check(&content, &id, settings::max_document_size())?;
    let content_type =
        parse::ContentType::detect(given.content_type.as_deref(), &id, given.uri.as_deref(), &content)?;
    if given.metadata.as_ref().is_some_and(|metadata| !metadata.is_object()) {
        return Err(Error::Argument { argument: "metadata", problem: "must be a JSON object".into() });
    }
    Ok(NewDocument {
        external_id: id,
        original,
        content,
        content_type: content_type.name().to_string(),
        title: given.title,
        uri: given.uri,
        metadata: given.metadata,
    })
}

/// Puts all documents or none. Returns what happened to each, in order.
pub fn put_documents(kb_id: &str, given: Vec<Given>) -> Result<Vec<(String, PutStatus)>> {
    let kb = knowledge_bases::get_own(kb_id)?;
    let mut documents = Vec::with_capacity(given.len());
    let mut seen = HashSet::new();
    for given in given {
        let document = check(given)?;
        if !seen.insert(document.external_id.clone()) {
            return Err(Error::Argument {
                argument: "documents",
                problem: format!("external_id \"{}\" appears twice", document.external_id),
            });
        }
        documents.push(document);
    }
    // As the owner, because writers may not touch the tables themselves; the knowledge base is the caller's own.
    as_owner(|| {
        let ids: Vec<String> = documents.iter().map(|document| document.external_id.clone()).collect();
        documents::lock(kb.kb_no, &kb.tenant_id, &ids)?;
        // New ones cannot be locked before: two calls that put the same ones must not deadlock.
        documents.sort_by(|a, b| a.external_id.cmp(&b.external_id));
        let mut put = HashMap::with_capacity(documents.len());
        for document in documents {
            let status = documents::put(&kb, &document)?;
            put.insert(document.external_id, status);
        }
        let results: Vec<_> = ids.into_iter().filter_map(|id| put.remove_entry(&id)).collect();
        let changed: Vec<Subject> = results
            .iter()
            .filter(|(_, status)| *status != PutStatus::Skipped)
            .map(|(id, _)| Subject { tenant_id: kb.tenant_id.clone(), name: id.clone() })
            .collect();
        enqueue::edits(&kb, &changed)?;
        Ok(results)
    })
}
