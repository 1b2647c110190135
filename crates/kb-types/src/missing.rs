//! What is to be embedded of a chunk.

use uuid::Uuid;

/// A chunk that has no vector yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Missing {
    pub document_id: i64,
    pub ordinal: i32,
    pub chunk_id: Uuid,
    /// With its context.
    pub content: String,
    /// At most.
    pub token_count: i32,
}
