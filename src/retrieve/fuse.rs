//! Several sources' candidates become one list, best first.

use crate::model::Candidate;

/// An answer has one source yet, vectors or keywords: its order stays, by its score.
pub fn fuse(mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    for candidate in &mut candidates {
        candidate.rank_score = candidate.dense.or(candidate.keyword).map(|found| found.score);
    }
    candidates
}

#[cfg(test)]
mod tests {
    use super::super::{test_candidate, test_scores};
    use super::*;
    use crate::model::candidate::Found;

    #[test]
    fn one_source_keeps_its_order_and_its_scores() {
        let mut candidates = vec![test_candidate("a", 0.9, 1), test_candidate("b", 0.3, 1)];
        let fused = fuse(candidates.clone());
        assert_eq!(test_scores(&fused), [0.9, 0.3]);
        assert_eq!(fused.iter().map(|c| c.rank_score).collect::<Vec<_>>(), [Some(0.9), Some(0.3)]);
        for candidate in &mut candidates {
            (candidate.keyword, candidate.dense) = (Some(Found { rank: 1, score: 0.1 }), None);
        }
        let fused = fuse(candidates.clone());
        assert_eq!(fused[0].chunk_id, candidates[0].chunk_id);
        assert_eq!((fused[0].score(), fused[0].rank_score), (None, Some(0.1)));
    }
}
