//! kb.drop_knowledge_base.

use crate::builds::knowledge_bases;
use crate::pg::role::as_owner;
use crate::pg::subtransaction::in_subtransaction;
use crate::pg::{setting, txn, wake};
use crate::query::query_log;
use crate::tables::source_tables;
use crate::tables::sources::catalog;
use crate::tenants::quota;
use crate::vectors;
use kb_types::error::Result;
use std::ffi::CStr;

const HARDLY_WAITING: &[(&CStr, &CStr)] = &[(c"lock_timeout", c"20ms")];

/// Drops a knowledge base with its documents, chunks, vectors and runs. The tables of its vectors are
/// emptied; the worker drops them after the commit.
pub fn drop_knowledge_base(id: &str) -> Result<()> {
    let kb = knowledge_bases::get_own(id)?;
    as_owner(|| {
        // This waits for transactions that put documents or begin a run, before any table is locked.
        knowledge_bases::lock_with_documents(&kb)?;
        for source in txn::with_latest_snapshot(|| catalog::of_knowledge_base(kb.kb_no))? {
            source_tables::detach(&source)?;
        }
        // The tables that exist now, even in a transaction that began earlier.
        for vector_db in txn::with_latest_snapshot(|| vectors::owned(kb.kb_no))? {
            // If an open transaction, also of another tenant, has queried the table, this does not wait for
            // it: the vectors are then deleted one by one with their chunks, or when the worker drops the
            // table.
            match in_subtransaction(|| setting::with(HARDLY_WAITING, || vector_db.store().empty())) {
                Err(error) if !error.is_lock() => return Err(error),
                _ => {}
            }
        }
        quota::forget();
        // The indexer drops the indexes that no other knowledge base wants.
        wake::at_commit(0);
        query_log::delete_feedback_of(kb.kb_no)?;
        knowledge_bases::delete(kb.kb_no)
    })
}
