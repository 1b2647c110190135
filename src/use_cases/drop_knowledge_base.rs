//! kb.drop_knowledge_base.

use crate::catalog::{quota, source_tables};
use crate::error::Result;
use crate::pg::role::as_owner;
use crate::pg::{txn, wake};
use crate::store::sources::catalog;
use crate::store::{knowledge_bases, vector_store};

/// Drops its documents, chunks, vectors and runs with it. The tables of its vectors are emptied; the worker drops them after the commit,
/// since that locks kb.chunks, which all questions read, and this transaction may last.
pub fn drop_knowledge_base(id: &str) -> Result<()> {
    let kb = knowledge_bases::get_own(id)?;
    as_owner(|| {
        // Whoever is putting documents or beginning a run is waited for before any table is locked.
        knowledge_bases::lock_with_documents(&kb)?;
        for source in txn::with_latest_snapshot(|| catalog::of_knowledge_base(kb.kb_no))? {
            source_tables::let_go(&source)?;
        }
        // Tables that are there now, even in a transaction that began earlier.
        for vector_db in txn::with_latest_snapshot(|| vector_store::owned(kb.kb_no))? {
            vector_db.store().empty()?;
        }
        quota::forget();
        // And the indexes that nobody else wants are dropped by the indexer.
        wake::at_commit(0);
        knowledge_bases::delete(kb.kb_no)
    })
}
