//! A chunk as a part of its document's text.

use uuid::Uuid;

#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    pub chunk_id: Uuid,
    pub ordinal: i32,
    /// Counted in characters from the start of the document; the end is exclusive.
    pub start: i32,
    pub end: i32,
    pub content: String,
    pub token_count: i32,
    /// Titles of the headings above it, outermost first.
    pub headings: Vec<String>,
    /// The text between it and the next passage, which may be empty. None where the two do not join.
    pub gap: Option<String>,
}
