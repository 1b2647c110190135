//! A chunk that a query found.

use super::json::Json;
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
    pub metadata: Json,
    pub locator: Value,
    /// The document has been edited since this chunk was made.
    pub stale: bool,
    pub content_hash: Vec<u8>,
    /// Similarity; larger is nearer. None where no vectors were compared.
    pub score: Option<f64>,
    /// What the rows are ordered by, where that is not the similarity.
    pub rank_score: Option<f64>,
}
