//! kb._vector_count and kb._index_state, of view kb.status.

use crate::error::Result;
use crate::store::vector_store;

/// Vectors of a build, as far as the caller's policies show them.
pub fn vector_count(build_no: i64) -> Result<i64> {
    vector_store::count(build_no)
}

/// How many segments of its table have an index, and how many of the vectors that [`vector_count`] counts have none.
pub fn index_state(build_no: i64) -> Result<Vec<i64>> {
    let (segments, unindexed) = vector_store::index_state(build_no)?;
    Ok(vec![segments, unindexed])
}
