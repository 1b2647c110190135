//! A chunk that a query found.

use serde_json::Value;
use uuid::Uuid;

/// A chunk that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    pub chunk_id: Uuid,
    pub external_id: String,
    pub title: Option<String>,
    pub content: String,
    pub token_count: i32,
    pub metadata: Value,
    pub locator: Value,
    /// The document has been edited since this chunk was made.
    pub stale: bool,
    pub content_hash: Vec<u8>,
    /// Similarity; larger is nearer.
    pub score: f64,
}
