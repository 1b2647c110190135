//! Removes candidates with equal texts.

use kb_types::Candidate;
use std::collections::HashSet;

/// Keeps the first candidate of each text. Candidates must come best first and have heads.
pub fn distinct(mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    let mut seen = HashSet::new();
    candidates.retain(|candidate| {
        candidate.head.as_ref().is_some_and(|head| seen.insert(head.content_hash.clone()))
    });
    candidates
}

/// The number of distinct texts.
pub fn count(candidates: &[Candidate]) -> usize {
    let hashes = candidates.iter().filter_map(|candidate| Some(&candidate.head.as_ref()?.content_hash));
    hashes.collect::<HashSet<_>>().len()
}

/// How many of the first candidates have `texts` distinct texts. None if all of them have fewer.
pub fn first(candidates: &[Candidate], texts: usize) -> Option<usize> {
    let mut seen = HashSet::new();
    for (place, candidate) in candidates.iter().enumerate() {
        let is_new = candidate.head.as_ref().is_some_and(|head| seen.insert(&head.content_hash));
        if is_new && seen.len() == texts {
            return Some(place + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::{test_candidate, test_scores};
    use super::*;

    #[test]
    fn the_best_of_each_text_stays() {
        let candidates =
            vec![test_candidate("a", 0.9, 1), test_candidate("b", 0.8, 1), test_candidate("a", 0.7, 1)];
        assert_eq!((count(&candidates), first(&candidates, 1), first(&candidates, 2)), (2, Some(1), Some(2)));
        assert_eq!((first(&candidates, 3), first(&candidates[1..], 2)), (None, Some(2)));
        assert_eq!(test_scores(&distinct(candidates)), [0.9, 0.8]);
    }
}
