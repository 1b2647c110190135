//! kb.detach_table.

use crate::builds::knowledge_bases;
use crate::pg::role::as_owner;
use crate::tables::source_tables;
use crate::tables::sql::row_documents;
use crate::tables::sql::sources::table;
use crate::tenants::quota;
use kb_types::error::{Error, Result};

/// Detaches a table: its rows' documents are deleted or, with `keep`, stay as if they had been put. Returns
/// the number of these documents.
pub fn detach_table(kb_id: &str, relation: u32, keep: bool) -> Result<i64> {
    let kb = knowledge_bases::get_own(kb_id)?;
    as_owner(|| {
        knowledge_bases::lock(&kb)?;
        let Some(source) = source_tables::of_knowledge_base(kb.kb_no, relation)? else {
            // A table that no longer exists has only its number.
            let name = table::find(relation)?.map_or_else(|| relation.to_string(), |table| table.name);
            return Err(Error::NotAttached { table: name, kb_id: kb.id.clone() });
        };
        source_tables::must_see_all("kb.detach_table")?;
        source_tables::detach(&source)?;
        quota::forget();
        // Jobs come after their documents: a transaction that enqueues one has locked its document, and this
        // call waits for it there.
        let gone = match keep {
            true => row_documents::keep(source.source_no)?,
            false => row_documents::delete_all(source.source_no)?,
        };
        if keep {
            row_documents::keep_jobs(&source)?;
        }
        row_documents::delete_jobs(&source)?;
        Ok(gone)
    })
}
