//! From a question to ranked rows, in stages, each a function over candidates (`kb_types::Candidate`) without
//! SQL:
//!
//! 1. recall (`recall.rs`, by the steps of `plan.rs`): what is near by meaning or words
//! 2. fuse (`fuse.rs`): one list of both, by standardised scores, by ranks or by scores
//! 3. rerank (`rerank.rs`): the order of a model that reads question and text together
//! 4. diversify (`diversity.rs`, with `collapse.rs` and `mmr.rs`): what repeats is left out, and recall is
//!    asked for more
//! 5. shape (`shape.rs`, with `dedupe.rs` and `trim.rs`): equal texts once, bounds, then hits
//! 6. surround (`passages.rs`): chunks that meet become one passage
//!
//! Each stage writes down what it did in a journal, which is closed, and costs nothing, but for kb.explain.

#![forbid(unsafe_code)]

mod automaton;
pub mod beir;
pub mod bm25;
mod collapse;
pub mod context;
pub mod dedupe;
pub mod diversity;
pub mod ef_search;
pub mod explanation;
pub mod fuse;
pub mod journal;
pub mod levels;
pub mod metrics;
mod mmr;
pub mod passages;
pub mod plan;
pub mod quotes;
mod ranks;
pub mod recall;
pub mod request;
pub mod rerank;
pub mod segments;
pub mod several;
pub mod shape;
pub mod tail;
pub mod transform;
pub mod trim;
pub mod tuning;
pub mod words;

pub use request::Request;

#[cfg(test)]
mod recall_tests;

/// A candidate of the vectors with its head and row; the content makes its id and its hash.
#[cfg(test)]
pub fn test_candidate(content: &str, score: f64, token_count: i32) -> kb_types::Candidate {
    use kb_types::candidate::{Candidate, ChunkHead, ChunkPlace, ChunkRow, Found};
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
            metadata: kb_types::Json::empty_object(),
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
pub fn test_scores(candidates: &[kb_types::Candidate]) -> Vec<f64> {
    candidates.iter().filter_map(|candidate| candidate.score()).collect()
}
