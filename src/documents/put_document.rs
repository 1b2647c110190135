//! kb.put_document and kb.put_documents: check, store, enqueue; the worker does the rest.

use crate::builds::knowledge_bases;
use crate::documents::new_document::{GivenDocument, check};
use crate::documents::sql::new_documents;
use crate::documents::sql::new_documents::DocumentPlace;
use crate::documents::sql::stored;
use crate::jobs::enqueue;
use crate::jobs::queue::Subject;
use crate::pg::role::as_owner;
use crate::tenants::quota::Charge;
use kb_types::error::{Error, Result};
use kb_types::row_states::PutStatus;
use kb_types::{Json, Retrieval};
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

/// Puts all documents or none. Returns the outcome for each, in order.
pub fn put_documents(kb_id: &str, given: Vec<GivenDocument>) -> Result<Vec<(String, PutStatus)>> {
    let kb = knowledge_bases::get_own(kb_id)?;
    let mut documents = Vec::with_capacity(given.len());
    let mut seen = HashSet::new();
    for given in given {
        let document = check(given)?;
        check_keys(&kb.retrieval, document.metadata.as_ref())?;
        if !seen.insert(document.external_id.clone()) {
            return Err(Error::Argument {
                argument: "documents",
                problem: format!("external_id \"{}\" appears twice", document.external_id),
            });
        }
        documents.push(document);
    }
    // Writers may not change the tables themselves, so this runs as the owner. The knowledge base belongs to
    // the caller's tenant.
    as_owner(|| {
        let ids: Vec<String> = documents.iter().map(|document| document.external_id.clone()).collect();
        // The quota is locked before any document, because the holder of its lock goes on to lock documents.
        let mut charge = Charge::begin(&kb.tenant_id, kb.kb_no, true)?;
        stored::lock(kb.kb_no, &kb.tenant_id, &ids)?;
        charge.as_mut().map_or(Ok(()), |charge| charge.look(&kb.tenant_id, &ids))?;
        // New documents cannot be locked before they are inserted. The order keeps two calls that put the
        // same ones from deadlocking.
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
        enqueue::edits(&kb, &changed)?;
        Ok(results)
    })
}
