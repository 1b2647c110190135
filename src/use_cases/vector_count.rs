//! kb._vector_count, of view kb.status.

use crate::error::Result;
use crate::store::vector_store;

/// Vectors of a build, as far as the caller's policies show them.
pub fn vector_count(build_no: i64) -> Result<i64> {
    vector_store::count(build_no)
}
