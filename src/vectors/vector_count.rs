//! kb._vector_count, kb._index_state and kb._index_progress, for the view kb.status.

use crate::vectors::sql;
use kb_types::error::Result;
use serde_json::{Value, json};

/// The number of vectors of a build that the caller's policies show.
pub fn vector_count(build_no: i64) -> Result<i64> {
    sql::count(build_no)
}

/// The number of segments of the build's table that have an index, and the number of the vectors that
/// [`vector_count`] counts that no index has.
pub fn index_state(build_no: i64) -> Result<Vec<i64>> {
    let (segments, unindexed) = sql::index_state(build_no)?;
    Ok(vec![segments, unindexed])
}

/// The index that is being built on the build's table: what it is, PostgreSQL's name of the phase, and the
/// part that is done, if known. None: no index is being built, or the caller may not know.
pub fn index_progress(build_no: i64) -> Result<Option<Value>> {
    let progress = sql::index_progress(build_no)?;
    Ok(progress.map(|progress| {
        let what = if progress.is_merge { "merge" } else { "segment" };
        json!({"what": what, "phase": progress.phase, "done": progress.done})
    }))
}
