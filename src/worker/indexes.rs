//! Which vector tables want an HNSW index.

use crate::error::Result;
use crate::pg::txn;
use crate::store::vector_store::index::{self, Unindexed};

pub struct IndexWork {
    /// Tables with as many rows as the configuration asks for.
    pub wanted: Vec<Unindexed>,
    /// Other tables may want one soon: they are being filled, or somebody has locked them.
    pub is_more_expected: bool,
}

/// Looks at all vector tables; one that is dropped meanwhile wants no index.
pub fn find() -> Result<IndexWork> {
    let mut work = IndexWork { wanted: Vec::new(), is_more_expected: false };
    for table in txn::in_txn(index::unindexed)? {
        if table.is_filling || txn::in_txn(|| table.is_locked_exclusively())? {
            work.is_more_expected = true;
            continue;
        }
        match txn::in_txn(|| table.has_min_rows()) {
            Ok(true) => work.wanted.push(table),
            Ok(false) => {}
            Err(_) if txn::in_txn(|| table.is_going())? => work.is_more_expected = true,
            Err(error) => return Err(error),
        }
    }
    Ok(work)
}
