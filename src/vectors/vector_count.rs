//! kb._vector_count, kb._index_state and kb._index_progress, of view kb.status.

use crate::vectors::sql;
use kb_types::error::Result;
use serde_json::{Value, json};

/// Vectors of a build, as far as the caller's policies show them.
pub fn vector_count(build_no: i64) -> Result<i64> {
    sql::count(build_no)
}

/// How many segments of its table have an index, and how many of the vectors that [`vector_count`] counts have none.
pub fn index_state(build_no: i64) -> Result<Vec<i64>> {
    let (segments, unindexed) = sql::index_state(build_no)?;
    Ok(vec![segments, unindexed])
}

/// The index that is being built on its table: what it is, PostgreSQL's name of the phase, and the part that is done, where that is
/// known. None: none is, or the caller may not know.
pub fn index_progress(build_no: i64) -> Result<Option<Value>> {
    let progress = sql::index_progress(build_no)?;
    Ok(progress.map(|progress| {
        let what = if progress.is_merge { "merge" } else { "segment" };
        json!({"what": what, "phase": progress.phase, "done": progress.done})
    }))
}
