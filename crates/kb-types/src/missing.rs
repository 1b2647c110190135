//! A chunk that is still to be embedded.

use uuid::Uuid;

/// A chunk that has no vector yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Missing {
    pub document_id: i64,
    pub ordinal: i32,
    pub chunk_id: Uuid,
    /// The text, with its context before it.
    pub content: String,
    /// An upper estimate.
    pub token_count: i32,
}
