//! kb.drop_source.

use super::create_source::get;
use super::sql::{catalog, items};
use crate::builds::knowledge_bases;
use crate::jobs::queue;
use crate::pg::role::as_owner;
use crate::pg::{txn, wake};
use crate::tenants::quota;
use kb_types::error::{Error, Result};

/// Drops a source: its documents are deleted, or stay as if they had been put. Returns their number.
pub fn drop_source(kb_id: &str, name: &str, delete_documents: bool) -> Result<i64> {
    let kb = knowledge_bases::get_own(kb_id)?;
    if !txn::is_read_committed() {
        return Err(Error::State {
            problem: "kb.drop_source needs isolation level READ COMMITTED".into(),
            hint: "Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED: it must see every document of the source."
                .into(),
        });
    }
    as_owner(|| {
        let kb = knowledge_bases::lock(&kb)?;
        let source = get(&kb, name)?;
        // This waits for the worker, which holds the source while it puts documents of it.
        catalog::delete(&source)?;
        // Jobs come after their documents, as in kb.detach_table.
        let number = match delete_documents {
            true => {
                let deleted = items::delete_all(source.source_no)?;
                queue::delete(kb.kb_no, &kb.tenant_id, &deleted)?;
                deleted.len() as i64
            }
            false => items::keep_all(source.source_no)?,
        };
        catalog::delete_job(&source)?;
        quota::forget();
        wake::look_at_commit();
        Ok(number)
    })
}
