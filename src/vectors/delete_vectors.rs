//! kb._delete_vectors, which the triggers on kb.chunks and kb.builds call.

use crate::vectors::sql;
use kb_types::error::Result;
use uuid::Uuid;

/// Deletes the vectors of chunks of a build that were deleted.
pub fn delete_vectors(build_no: i64, chunk_ids: &[Uuid]) -> Result<()> {
    sql::delete_of_chunks(build_no, chunk_ids)
}

/// Deletes the vectors of a deleted build from the table that had them.
pub fn delete_vectors_of_build(build_no: i64, relation: &str) -> Result<()> {
    sql::delete_of_build(build_no, relation)
}
