//! Ranks by scores, in which equal scores share one.

/// Scores that differ by at most this share of the greatest count as equal. Numbers of vectors have 24 bits,
/// and a similarity sums hundreds of their products, so that similarities of equal vectors can differ by
/// about 1e-7, depending on the order of the sums. A difference of a millionth says nothing about relevance.
pub const EQUAL: f64 = 1e-6;

/// The ranks, from 1, of scores that come best first. Equal scores have the rank of the first of them, and
/// the next score has the rank of its place: 1, 1, 3. A missing score (None or NaN) has the rank of its
/// place.
pub fn shared(scores: impl IntoIterator<Item = Option<f64>>) -> Vec<usize> {
    let scores: Vec<f64> = scores.into_iter().map(|score| score.unwrap_or(f64::NAN)).collect();
    let greatest =
        scores.iter().filter(|score| score.is_finite()).fold(0.0, |most: f64, s| most.max(s.abs()));
    let mut ranks: Vec<usize> = Vec::with_capacity(scores.len());
    // Scores are compared with the first of the rank, so that small steps do not add up.
    let mut first = 0;
    for (place, score) in scores.iter().enumerate() {
        let best = scores[first];
        let is_equal = *score == best || (best - score).abs() <= EQUAL * greatest;
        if !is_equal {
            first = place;
        }
        ranks.push(first + 1);
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(scores: &[f64]) -> Vec<usize> {
        shared(scores.iter().map(|score| Some(*score)))
    }

    #[test]
    fn equal_scores_share_a_rank_and_the_next_has_the_rank_of_its_place() {
        assert_eq!(ranks(&[0.9, 0.5, 0.5, 0.5, 0.4]), [1, 2, 2, 2, 5]);
        assert_eq!(ranks(&[0.9, 0.9 - 1e-7, 0.89]), [1, 1, 3]);
        assert_eq!(ranks(&[20.0, 20.0 - 1e-5, 19.9]), [1, 1, 3]);
        assert_eq!(ranks(&[-0.1, -0.1, -250.0]), [1, 1, 3]);
        assert_eq!(ranks(&[0.0, 0.0]), [1, 1]);
        assert!(ranks(&[]).is_empty());
    }

    #[test]
    fn small_steps_do_not_add_up_to_one_rank() {
        let steps: Vec<f64> = (0..10).map(|i| 1.0 - f64::from(i) * 0.6e-6).collect();
        assert_eq!(ranks(&steps), [1, 1, 3, 3, 5, 5, 7, 7, 9, 9]);
    }

    #[test]
    fn a_score_that_is_not_a_number_shares_no_rank() {
        assert_eq!(ranks(&[f64::INFINITY, f64::INFINITY, 1.0, f64::NAN, f64::NAN]), [1, 1, 3, 4, 5]);
        assert_eq!(shared([None, None, Some(0.1)]), [1, 2, 3]);
    }
}
