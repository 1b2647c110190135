//! Reranking: candidates ordered again by a model that reads the question and each text together.

use crate::model::Candidate;

/// There is no reranker yet: the order stays.
pub fn rerank(candidates: Vec<Candidate>) -> Vec<Candidate> {
    candidates
}
