//! The order and the scores of what a memory recalls.
//!
//! The score of an entry is its similarity, multiplied by its freshness, which falls linearly from 1 to 0
//! with the days since the entry was last accessed: 1 − decay factor × days, with decay factor =
//! 0.5 / half life.

/// An entry that was found, in the order of the search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    /// None: no vectors were compared.
    pub similarity: Option<f64>,
    /// The score that ordered the search.
    pub rank_score: Option<f64>,
    /// Days since it was last accessed, or since it was created.
    pub days: f64,
}

/// From 0 to 1. `half_life`: the days after which it is one half; None: it is always 1.
pub fn freshness(days: f64, half_life: Option<f64>) -> f64 {
    match half_life {
        Some(half_life) => (1.0 - 0.5 / half_life * days.max(0.0)).clamp(0.0, 1.0),
        None => 1.0,
    }
}

/// The places of the entries to return, the best first, with their scores.
///
/// Entries are ordered by relevance times freshness. The relevance is the score of the search, scaled to the
/// range of the similarities of all entries: if the search was by meaning alone, it is the similarity. So a
/// fused order stays as it is among entries of the same age, and freshness counts as much as in the score.
/// Entries whose score is below `min_score` are left out; those without a similarity are not.
pub fn order(
    found: &[Found],
    half_life: Option<f64>,
    min_score: f64,
    most: usize,
) -> Vec<(usize, Option<f64>)> {
    let similarities = range(found.iter().filter_map(|entry| entry.similarity)).unwrap_or((0.5, 1.0));
    let ranks = range(found.iter().filter_map(|entry| entry.rank_score));
    let relevance = |entry: &Found| match (entry.rank_score, ranks) {
        (Some(score), Some((least, greatest))) if greatest > least => {
            similarities.0 + (similarities.1 - similarities.0) * (score - least) / (greatest - least)
        }
        _ => similarities.1,
    };
    let mut ordered: Vec<(usize, Option<f64>, f64)> = found
        .iter()
        .enumerate()
        .map(|(place, entry)| {
            let freshness = freshness(entry.days, half_life);
            (place, entry.similarity.map(|similarity| similarity * freshness), relevance(entry) * freshness)
        })
        .filter(|(_, score, _)| score.is_none_or(|score| score >= min_score))
        .collect();
    ordered.sort_by(|a, b| b.2.total_cmp(&a.2));
    ordered.truncate(most);
    ordered.into_iter().map(|(place, score, _)| (place, score)).collect()
}

/// The least and the greatest.
fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|value| value.is_finite()).fold(None, |range, value| match range {
        None => Some((value, value)),
        Some((least, greatest)) => Some((value.min(least), value.max(greatest))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(similarity: Option<f64>, rank_score: f64, days: f64) -> Found {
        Found { similarity, rank_score: Some(rank_score), days }
    }

    #[test]
    fn freshness_is_half_after_the_half_life_and_nothing_after_twice_that() {
        for (days, expected) in [(-3.0, 1.0), (0.0, 1.0), (45.0, 0.75), (90.0, 0.5), (180.0, 0.0), (1e9, 0.0)]
        {
            assert_eq!(freshness(days, Some(90.0)), expected, "{days}");
            assert_eq!(freshness(days, None), 1.0);
        }
    }

    #[test]
    fn by_meaning_the_order_is_that_of_the_scores() {
        let entries = [found(Some(0.9), 0.9, 100.0), found(Some(0.8), 0.8, 0.0), found(Some(0.7), 0.7, 30.0)];
        let ordered = order(&entries, Some(90.0), 0.0, 10);
        let scores: Vec<f64> = ordered.iter().filter_map(|(_, score)| *score).collect();
        assert_eq!(ordered.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [1, 2, 0]);
        assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
        assert!((scores[2] - 0.9 * (1.0 - 0.5 / 90.0 * 100.0)).abs() < 1e-12);
    }

    #[test]
    fn without_decay_the_order_of_the_search_stays_and_few_and_low_scores_are_left_out() {
        let entries = [found(Some(0.3), 2.0, 9.0), found(None, 1.5, 0.0), found(Some(0.7), -1.0, 0.0)];
        let places = |min_score, most| {
            order(&entries, None, min_score, most).into_iter().map(|(place, _)| place).collect::<Vec<_>>()
        };
        assert_eq!((places(0.0, 10), places(0.5, 10), places(0.0, 1)), (vec![0, 1, 2], vec![1, 2], vec![0]));
        assert_eq!(order(&[], Some(1.0), 0.0, 5), []);
    }

    #[test]
    fn by_words_alone_there_is_no_score_and_the_fresh_come_first_among_equals() {
        let entries = [found(None, 1.0, 60.0), found(None, 1.0, 1.0)];
        assert_eq!(order(&entries, Some(90.0), 0.9, 5), [(1, None), (0, None)]);
    }
}
