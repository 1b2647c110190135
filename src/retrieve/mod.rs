//! From a question to ranked rows, in stages: recall, fuse, rerank, shape. Each takes candidates and gives candidates; the
//! last gives hits.

mod automaton;
mod collapse;
pub mod context;
pub mod dedupe;
#[cfg(feature = "server")]
pub mod dense;
pub mod diversity;
pub mod explanation;
pub mod fuse;
#[cfg(feature = "server")]
pub mod gone;
#[cfg(feature = "server")]
pub mod index_recall;
pub mod journal;
#[cfg(feature = "server")]
pub mod keyword;
pub mod metrics;
mod mmr;
pub mod passages;
pub mod plan;
pub mod quotes;
mod ranks;
pub mod recall;
pub mod request;
pub mod rerank;
pub mod several;
pub mod shape;
#[cfg(feature = "server")]
pub mod surroundings;
pub mod transform;
pub mod trim;
pub mod tuning;
#[cfg(feature = "server")]
mod word_statistics;
pub mod words;

pub use request::Request;

#[cfg(test)]
mod recall_tests;

/// A candidate of the vectors with its head and row; the content makes its id and its hash.
#[cfg(test)]
pub(crate) fn test_candidate(content: &str, score: f64, token_count: i32) -> crate::model::Candidate {
    use crate::model::candidate::{Candidate, ChunkHead, ChunkPlace, ChunkRow, Found};
    let id = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, format!("{content}{score}").as_bytes());
    Candidate {
        dense: Some(Found { rank: 1, score }),
        head: Some(ChunkHead {
            external_id: "d".into(),
            document_id: 1,
            content_hash: content.as_bytes().to_vec(),
            token_count,
            source: None,
            is_changed: false,
        }),
        row: Some(ChunkRow {
            external_id: "d".into(),
            title: None,
            content: content.into(),
            token_count,
            metadata: crate::model::Json::empty_object(),
            locator: serde_json::json!({}),
            stale: false,
            content_hash: content.as_bytes().to_vec(),
            place: ChunkPlace { document_id: 1, ordinal: 0, start: 0, end: content.chars().count() as i32 },
            source: None,
        }),
        ..Candidate::new(id)
    }
}

#[cfg(test)]
pub(crate) fn test_scores(candidates: &[crate::model::Candidate]) -> Vec<f64> {
    candidates.iter().filter_map(|candidate| candidate.score()).collect()
}
