//! A chunk as a part of its document's text.

use uuid::Uuid;

#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    pub chunk_id: Uuid,
    pub ordinal: i32,
    /// Characters from the document's first, the end exclusive.
    pub start: i32,
    pub end: i32,
    pub content: String,
    pub token_count: i32,
    /// Titles of the headings above it, outermost first.
    pub headings: Vec<String>,
    /// What is between it and the next one, which may be nothing; None: they do not join.
    pub gap: Option<String>,
}
