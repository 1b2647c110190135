//! kb.delete_document and kb.delete_documents.

use crate::catalog::quota;
use crate::error::{Error, Result};
use crate::pg::role::as_owner;
use crate::store::{documents, jobs, knowledge_bases, row_documents};
use std::collections::HashSet;

/// Deletes documents. Returns for each id, in order, whether it existed.
pub fn delete_documents(kb_id: &str, external_ids: &[String]) -> Result<Vec<(String, bool)>> {
    let kb = knowledge_bases::get_own(kb_id)?;
    let deleted = as_owner(|| {
        let locked = documents::lock(kb.kb_no, &kb.tenant_id, external_ids)?;
        if let Some(external_id) = row_documents::any_of(&locked)? {
            return Err(Error::of_a_row(&external_id, "Delete the row"));
        }
        let deleted: HashSet<String> = documents::delete(&locked)?.into_iter().collect();
        // After the documents: this way a job that was enqueued meanwhile is deleted, too.
        jobs::delete(kb.kb_no, &kb.tenant_id, external_ids)?;
        quota::forget();
        Ok(deleted)
    })?;
    Ok(external_ids.iter().map(|id| (id.clone(), deleted.contains(id))).collect())
}
