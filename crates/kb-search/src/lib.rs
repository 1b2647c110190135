//! From a question to ranked rows, in stages, each a function over candidates (`kb_types::Candidate`) without
//! SQL:
//!
//! 1. recall (`recall.rs`, by the steps of `plan.rs`): candidates from vectors and from keyword search
//! 2. fuse (`fuse.rs`): makes one list of both, by standardised scores, by ranks or by scores
//! 3. rerank (`rerank.rs`): orders candidates by a model that reads question and text together
//! 4. diversify (`diversity.rs`, with `collapse.rs` and `mmr.rs`): drops near duplicates, and recalls more if
//!    needed
//! 5. shape (`shape.rs`, with `dedupe.rs` and `trim.rs`): drops equal texts, applies limits, and makes hits
//! 6. surround (`passages.rs`): joins adjacent chunks to passages
//!
//! Each stage records what it did in a journal, which is closed and costs nothing except for kb.explain.

#![forbid(unsafe_code)]

pub mod answer_limits;
pub mod answer_prompt;
mod automaton;
pub mod beir;
pub mod bindings;
pub mod bm25;
pub mod citations;
pub mod context;
pub mod dedupe;
pub mod diversity;
pub mod ef_search;
pub mod explanation;
pub mod fuse;
pub mod journal;
pub mod metrics;
mod mmr;
pub mod packed_vectors;
pub mod passages;
pub mod question_rewording;
pub mod quotes;
mod ranks;
pub mod recall;
pub mod related;
pub mod remembered;
pub mod request;
pub mod rerank_order;
mod resemblance;
pub mod scan_plan;
pub mod segment_merging;
pub mod several_knowledge_bases;
pub mod shape;
pub mod tuning;
pub mod vector_segments;
pub mod words;

pub use request::Request;

#[cfg(test)]
mod recall_tests;

/// A candidate from vectors with head and row. Its id and hash are made of the content.
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
