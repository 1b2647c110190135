//! kb.delete_document, kb.delete_documents and kb.delete_by_filter.

use crate::builds::knowledge_bases;
use crate::builds::knowledge_bases::KnowledgeBase;
use crate::documents::sql::stored;
use crate::jobs::queue;
use crate::pg::role::as_owner;
use crate::pg::wake;
use crate::tenants::quota;
use kb_types::error::{Error, Result};
use kb_types::{Filter, Json};
use std::collections::HashSet;

/// From this many deleted documents on, a deletion wakes the worker, because it is worth folding their words.
pub const MANY: usize = 256;

/// Deletes documents. Returns for each id, in order, whether it existed.
pub fn delete_documents(kb_id: &str, external_ids: &[String]) -> Result<Vec<(String, bool)>> {
    let kb = knowledge_bases::get_own(kb_id)?;
    let deleted = as_owner(|| delete_locked(&kb, &lock(&kb, external_ids)?))?;
    let deleted: HashSet<String> = deleted.into_iter().collect();
    Ok(external_ids.iter().map(|id| (id.clone(), deleted.contains(id))).collect())
}

/// Deletes the documents that pass a filter. Returns their number.
pub fn delete_by_filter(kb_id: &str, filter: &Json) -> Result<i64> {
    let kb = knowledge_bases::get_own(kb_id)?;
    let argument = |problem: String| Error::Argument { argument: "filter", problem };
    let filter = Filter::parse(filter).map_err(argument)?;
    if filter.is_always() {
        return Err(argument(
            "it matches every document; to delete all, write {\"type\": \"exists\", \"key\": \"$external_id\"}"
                .into(),
        ));
    }
    if let Some(problem) = kb.retrieval.key_problem(filter.metadata_keys()) {
        return Err(argument(problem));
    }
    delete_matching(&kb, &filter)
}

fn delete_matching(kb: &KnowledgeBase, filter: &Filter) -> Result<i64> {
    Ok(as_owner(|| delete_locked(kb, &lock_matching(kb, filter)?))?.len() as i64)
}

/// Locks documents of a knowledge base. Returns the document_ids of those that there are. Must run as the
/// owner.
pub fn lock(kb: &KnowledgeBase, external_ids: &[String]) -> Result<Vec<i64>> {
    stored::lock(kb.kb_no, &kb.tenant_id, external_ids)
}

/// Locks the documents of a knowledge base that pass a filter. Returns their document_ids. Must run as the
/// owner.
pub fn lock_matching(kb: &KnowledgeBase, filter: &Filter) -> Result<Vec<i64>> {
    stored::lock_matching(kb.kb_no, &kb.tenant_id, filter)
}

/// Deletes documents of a knowledge base that are locked. Returns their external_ids. Must run as the owner.
pub fn delete_locked(kb: &KnowledgeBase, document_ids: &[i64]) -> Result<Vec<String>> {
    if let Some((external_id, source)) = stored::any_of_a_source(document_ids)? {
        return Err(Error::of_a_source(&external_id, source.as_deref(), "Delete the row"));
    }
    let deleted = stored::delete(document_ids)?;
    // Only jobs of documents that were deleted: a document that is put meanwhile, under a name that was free
    // or is another, has its own job.
    queue::delete(kb.kb_no, &kb.tenant_id, &deleted)?;
    quota::forget();
    if deleted.len() >= MANY {
        wake::look_at_commit();
    }
    Ok(deleted)
}
