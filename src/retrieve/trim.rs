//! Bounds on an answer: least score, number of rows, tokens.

use super::request::AnswerBounds;
use crate::model::Candidate;

/// Applies all bounds to candidates that come best first: those below `min_score` go, then all behind `top_k`, then the
/// last until the rest have at most `max_tokens` together.
pub fn trim(mut candidates: Vec<Candidate>, bounds: &AnswerBounds) -> Vec<Candidate> {
    candidates.retain(|candidate| candidate.score().is_none_or(|score| score >= bounds.min_score));
    candidates.truncate(bounds.top_k);
    if let Some(max_tokens) = bounds.max_tokens {
        let size =
            |candidate: &Candidate| candidate.row.as_ref().map_or(0, |row| row.token_count.max(0) as usize);
        let mut tokens: usize = candidates.iter().map(size).sum();
        while tokens > max_tokens {
            match candidates.pop() {
                Some(candidate) => tokens -= size(&candidate),
                None => break,
            }
        }
    }
    candidates
}

#[cfg(test)]
mod tests {
    use super::super::{test_candidate, test_scores};
    use super::*;

    fn trimmed(
        candidates: &[Candidate],
        min_score: f64,
        top_k: usize,
        max_tokens: Option<usize>,
    ) -> Vec<f64> {
        let bounds = AnswerBounds { top_k, min_score, max_tokens, dedupe: false };
        test_scores(&trim(candidates.to_vec(), &bounds))
    }

    #[test]
    fn the_lowest_scored_go_until_the_rest_fit() {
        let candidates =
            [test_candidate("a", 0.9, 50), test_candidate("b", 0.8, 60), test_candidate("c", 0.7, 5)];
        assert_eq!(trimmed(&candidates, 0.0, 5, Some(115)), [0.9, 0.8, 0.7]);
        assert_eq!(trimmed(&candidates, 0.0, 5, Some(114)), [0.9, 0.8]);
        assert_eq!(trimmed(&candidates, 0.0, 5, Some(49)), [0.0; 0]);
    }

    #[test]
    fn min_score_is_inclusive_and_top_k_bounds() {
        let candidates =
            [test_candidate("a", 0.9, 1), test_candidate("b", 0.5, 1), test_candidate("c", 0.4, 1)];
        assert_eq!(trimmed(&candidates, 0.5, 5, None), [0.9, 0.5]);
        assert_eq!(trimmed(&candidates, 0.0, 1, None), [0.9]);
    }
}
