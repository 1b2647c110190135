//! Applies the limits of an answer: least score, number of rows and tokens.

use super::request::AnswerBounds;
use kb_types::Candidate;

/// Applies all limits to candidates that come best first: drops those below `min_score`, then those after
/// `top_k`, then each that does not fit into what earlier ones leave of `max_tokens`.
pub fn trim(mut candidates: Vec<Candidate>, bounds: &AnswerBounds) -> Vec<Candidate> {
    candidates.retain(|candidate| candidate.score().is_none_or(|score| score >= bounds.min_score));
    candidates.truncate(bounds.top_k);
    let mut room = Room::of(bounds.max_tokens);
    candidates.retain(|candidate| room.takes(candidate.head.as_ref().map_or(0, |head| head.token_count)));
    candidates
}

/// How many tokens are left for rows. None means any number.
pub struct Room(Option<usize>);

impl Room {
    pub fn of(max_tokens: Option<usize>) -> Room {
        Room(max_tokens)
    }

    /// Takes a row if it fits, and returns whether it did.
    pub fn takes(&mut self, tokens: i32) -> bool {
        match &mut self.0 {
            None => true,
            Some(left) => left.checked_sub(tokens.max(0) as usize).map(|rest| *left = rest).is_some(),
        }
    }
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
    fn rows_that_do_not_fit_are_dropped_and_later_ones_that_fit_stay() {
        let candidates =
            [test_candidate("a", 0.9, 50), test_candidate("b", 0.8, 60), test_candidate("c", 0.7, 5)];
        assert_eq!(trimmed(&candidates, 0.0, 5, Some(115)), [0.9, 0.8, 0.7]);
        assert_eq!(trimmed(&candidates, 0.0, 5, Some(114)), [0.9, 0.8]);
        // The second is too long, but the third fits.
        assert_eq!(trimmed(&candidates, 0.0, 5, Some(60)), [0.9, 0.7]);
        assert_eq!(trimmed(&candidates, 0.0, 5, Some(49)), [0.7]);
        assert_eq!(trimmed(&candidates, 0.0, 2, Some(49)), [0.0; 0]);
    }

    #[test]
    fn min_score_is_inclusive_and_top_k_is_a_limit() {
        let candidates =
            [test_candidate("a", 0.9, 1), test_candidate("b", 0.5, 1), test_candidate("c", 0.4, 1)];
        assert_eq!(trimmed(&candidates, 0.5, 5, None), [0.9, 0.5]);
        assert_eq!(trimmed(&candidates, 0.0, 1, None), [0.9]);
    }
}
