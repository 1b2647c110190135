//! kb.put_document and kb.put_documents: check, store, enqueue; the worker does the rest.

use crate::builds::knowledge_bases;
use crate::builds::knowledge_bases::KnowledgeBase;
use crate::documents::new_document::{GivenDocument, check};
use crate::documents::sql::new_documents;
use crate::documents::sql::new_documents::{DocumentPlace, NewDocument};
use crate::documents::sql::stored;
use crate::jobs::enqueue;
use crate::jobs::queue::Subject;
use crate::models::services;
use crate::pg::role::as_owner;
use crate::settings;
use crate::tenants::quota::Charge;
use kb_text::chunk_settings::Chunking;
use kb_text::tokenizer::max_content_tokens;
use kb_types::error::{Error, Result};
use kb_types::row_states::PutStatus;
use kb_types::{Json, Retrieval, ServiceKind, sizes};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};

/// Returns an error if metadata has a key that the knowledge base does not allow.
fn check_keys(retrieval: &Retrieval, metadata: Option<&Json>) -> Result<()> {
    let members = match metadata {
        Some(metadata) if !retrieval.allowed_metadata_keys.is_empty() => metadata.members(),
        _ => None,
    };
    let members = members.unwrap_or_default();
    match retrieval.key_problem(members.iter().map(|(key, _)| key.as_str())) {
        None => Ok(()),
        Some(problem) => Err(Error::Argument { argument: "metadata", problem }),
    }
}

/// Checks the chunkings of documents; many documents have the same.
#[derive(Default)]
struct Chunkings {
    /// The last one, as it was given, and with every default.
    last: Option<(Value, Json)>,
}

impl Chunkings {
    fn check(&mut self, kb: &KnowledgeBase, external_id: &str, given: &Value) -> Result<Json> {
        match &self.last {
            Some((last, checked)) if last == given => Ok(checked.clone()),
            _ => {
                let checked = check_chunking(kb, external_id, given)?;
                self.last = Some((given.clone(), checked.clone()));
                Ok(checked)
            }
        }
    }
}

/// The chunking of a document with every default; an empty object stays one. The error lists every problem.
fn check_chunking(kb: &KnowledgeBase, external_id: &str, given: &Value) -> Result<Json> {
    if *given == json!({}) {
        return Ok(Json::empty_object());
    }
    let embedder = services::embedder(&kb.embedder)?;
    let wrong = |problems| Error::configuration(format!("document \"{external_id}\""), problems);
    let chunking =
        Chunking::parse(given, max_content_tokens(&embedder, &settings::model_dir())?).map_err(wrong)?;
    if let Some(llm) = &chunking.context_llm
        && services::find(ServiceKind::Llm, llm)?.is_none()
    {
        return Err(wrong(vec![format!("chunking.context_llm: llm \"{llm}\" does not exist")]));
    }
    let json = chunking.to_json().to_string();
    match sizes::problem(json.len(), sizes::SETTINGS) {
        Some(problem) => Err(wrong(vec![format!("chunking: {problem}")])),
        None => Ok(Json::new(json)),
    }
}

/// Checks documents completely, before anything is stored.
pub fn check_all(kb: &KnowledgeBase, given: Vec<GivenDocument>) -> Result<Vec<NewDocument>> {
    let mut documents = Vec::with_capacity(given.len());
    let mut seen = HashSet::new();
    let mut chunkings = Chunkings::default();
    for mut given in given {
        let chunking = given.chunking.take();
        let mut document = check(given)?;
        document.chunking =
            chunking.map(|chunking| chunkings.check(kb, &document.external_id, &chunking)).transpose()?;
        check_keys(&kb.retrieval, document.metadata.as_ref())?;
        if !seen.insert(document.external_id.clone()) {
            return Err(Error::Argument {
                argument: "documents",
                problem: format!("external_id \"{}\" appears twice", document.external_id),
            });
        }
        documents.push(document);
    }
    Ok(documents)
}

/// Puts all documents or none. Returns the outcome for each, in order.
pub fn put_documents(kb_id: &str, given: Vec<GivenDocument>) -> Result<Vec<(String, PutStatus)>> {
    let kb = knowledge_bases::get_own(kb_id)?;
    let documents = check_all(&kb, given)?;
    put_checked(&kb, documents)
}

/// Puts documents that are checked. The knowledge base belongs to the caller's tenant.
pub fn put_checked(kb: &KnowledgeBase, documents: Vec<NewDocument>) -> Result<Vec<(String, PutStatus)>> {
    // Writers may not change the tables themselves, so this runs as the owner.
    as_owner(|| {
        let ids: Vec<String> = documents.iter().map(|document| document.external_id.clone()).collect();
        // The quota is locked before any document, because the holder of its lock goes on to lock documents.
        let charge = Charge::begin(&kb.tenant_id, kb.kb_no, true)?;
        stored::lock(kb.kb_no, &kb.tenant_id, &ids)?;
        put_locked(kb, charge, documents)
    })
}

/// Puts documents; those of them that exist are locked. Must run as the owner.
pub fn put_locked(
    kb: &KnowledgeBase,
    mut charge: Option<Charge>,
    mut documents: Vec<NewDocument>,
) -> Result<Vec<(String, PutStatus)>> {
    let ids: Vec<String> = documents.iter().map(|document| document.external_id.clone()).collect();
    charge.as_mut().map_or(Ok(()), |charge| charge.look(&kb.tenant_id, &ids))?;
    // New documents cannot be locked before they are inserted. The order keeps two calls that put the same
    // ones from deadlocking.
    documents.sort_by(|a, b| a.external_id.cmp(&b.external_id));
    let mut put = HashMap::with_capacity(documents.len());
    let place = DocumentPlace {
        kb_no: kb.kb_no,
        kb_id: &kb.id,
        tenant_id: &kb.tenant_id,
        source_no: None,
        part_of: None,
    };
    for document in documents {
        charge.as_mut().map_or(Ok(()), |charge| document.charge(charge))?;
        let Some(status) = new_documents::put(&place, &document)? else {
            let source = stored::source_of(kb.kb_no, &kb.tenant_id, &document.external_id)?;
            return Err(Error::of_a_source(&document.external_id, source.as_deref(), "Update the row"));
        };
        put.insert(document.external_id, status);
    }
    charge.map_or(Ok(()), Charge::book)?;
    let results: Vec<_> = ids.into_iter().filter_map(|id| put.remove_entry(&id)).collect();
    let changed: Vec<Subject> = results
        .iter()
        .filter(|(_, status)| *status != PutStatus::Skipped)
        .map(|(id, _)| Subject { tenant_id: kb.tenant_id.clone(), name: id.clone(), source_no: None })
        .collect();
    enqueue::edits(kb, &changed)?;
    Ok(results)
}
