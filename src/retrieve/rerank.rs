//! A second opinion on the order of candidates, by who reads the question and each text together.

use crate::model::Candidate;

/// There is no reranker yet: the order stays.
pub fn rerank(candidates: Vec<Candidate>) -> Vec<Candidate> {
    candidates
}
