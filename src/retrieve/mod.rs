//! From a question to ranked rows: which scan, then equal texts, bounds and order.

pub mod dedupe;
pub mod plan;
#[cfg(feature = "server")]
pub mod run;
pub mod trim;

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

#[cfg(test)]
pub(crate) fn test_hit(content: &str, score: f64, token_count: i32) -> Hit {
    Hit {
        chunk_id: Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{content}{score}").as_bytes()),
        external_id: "d".into(),
        title: None,
        content: content.into(),
        token_count,
        metadata: Value::Null,
        locator: serde_json::json!({}),
        stale: false,
        content_hash: content.as_bytes().to_vec(),
        score,
    }
}
