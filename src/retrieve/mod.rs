//! From a question to ranked rows: which scan, then equal texts, bounds and order.

pub mod dedupe;
pub mod filter;
pub mod plan;
#[cfg(feature = "server")]
pub mod run;
pub mod trim;

pub use crate::model::Hit;

#[cfg(test)]
pub(crate) fn test_hit(content: &str, score: f64, token_count: i32) -> Hit {
    Hit {
        chunk_id: uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, format!("{content}{score}").as_bytes()),
        external_id: "d".into(),
        title: None,
        content: content.into(),
        token_count,
        metadata: crate::model::Json::empty_object(),
        locator: serde_json::json!({}),
        stale: false,
        content_hash: content.as_bytes().to_vec(),
        score: Some(score),
        rank_score: None,
    }
}
