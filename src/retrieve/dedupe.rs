//! Equal texts answered once.

use crate::model::Candidate;
use std::collections::HashSet;

/// Keeps the first of each text (candidates come best first, with their rows).
pub fn distinct(mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    let mut seen = HashSet::new();
    candidates
        .retain(|candidate| candidate.row.as_ref().is_some_and(|row| seen.insert(row.content_hash.clone())));
    candidates
}

/// How many texts those are.
pub fn count(candidates: &[Candidate]) -> usize {
    let hashes = candidates.iter().filter_map(|candidate| Some(&candidate.row.as_ref()?.content_hash));
    hashes.collect::<HashSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::super::{test_candidate, test_scores};
    use super::*;

    #[test]
    fn the_best_of_each_text_stays() {
        let candidates =
            vec![test_candidate("a", 0.9, 1), test_candidate("b", 0.8, 1), test_candidate("a", 0.7, 1)];
        assert_eq!(count(&candidates), 2);
        assert_eq!(test_scores(&distinct(candidates)), [0.9, 0.8]);
    }
}
