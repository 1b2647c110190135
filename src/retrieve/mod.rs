//! From a question to ranked rows, in stages: recall, fuse, rerank, shape. Each takes candidates and gives candidates; the
//! last gives hits.

pub mod dedupe;
pub mod fuse;
pub mod plan;
pub mod recall;
pub mod request;
pub mod rerank;
pub mod shape;
pub mod trim;

pub use request::Request;

#[cfg(test)]
mod recall_tests;

/// A candidate of the vectors with its row; the content makes its id and its hash.
#[cfg(test)]
pub(crate) fn test_candidate(content: &str, score: f64, token_count: i32) -> crate::model::Candidate {
    use crate::model::candidate::{Candidate, ChunkRow, Found};
    let id = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, format!("{content}{score}").as_bytes());
    Candidate {
        dense: Some(Found { rank: 1, score }),
        row: Some(ChunkRow {
            external_id: "d".into(),
            title: None,
            content: content.into(),
            token_count,
            metadata: crate::model::Json::empty_object(),
            locator: serde_json::json!({}),
            stale: false,
            content_hash: content.as_bytes().to_vec(),
            source: None,
        }),
        ..Candidate::new(id)
    }
}

#[cfg(test)]
pub(crate) fn test_scores(candidates: &[crate::model::Candidate]) -> Vec<f64> {
    candidates.iter().filter_map(|candidate| candidate.score()).collect()
}
