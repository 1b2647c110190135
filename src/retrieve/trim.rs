//! Bounds on an answer: least score, number of rows, tokens.

use super::Hit;

/// Applies all bounds to hits that come best first: those below `min_score` go, then all behind
/// `top_k`, then the lowest scored until the rest have at most `max_tokens` together.
pub fn trim(mut hits: Vec<Hit>, min_score: f64, top_k: usize, max_tokens: Option<usize>) -> Vec<Hit> {
    hits.retain(|hit| hit.score.is_none_or(|score| score >= min_score));
    hits.truncate(top_k);
    if let Some(max_tokens) = max_tokens {
        let mut tokens: usize = hits.iter().map(|hit| hit.token_count.max(0) as usize).sum();
        while tokens > max_tokens {
            match hits.pop() {
                Some(hit) => tokens -= hit.token_count.max(0) as usize,
                None => break,
            }
        }
    }
    hits
}

#[cfg(test)]
mod tests {
    use super::super::test_hit;
    use super::*;

    fn scores(hits: &[Hit]) -> Vec<f64> {
        hits.iter().filter_map(|h| h.score).collect()
    }

    #[test]
    fn the_lowest_scored_go_until_the_rest_fit() {
        let hits = vec![test_hit("a", 0.9, 50), test_hit("b", 0.8, 60), test_hit("c", 0.7, 5)];
        assert_eq!(scores(&trim(hits.clone(), 0.0, 5, Some(115))), [0.9, 0.8, 0.7]);
        assert_eq!(scores(&trim(hits.clone(), 0.0, 5, Some(114))), [0.9, 0.8]);
        assert_eq!(scores(&trim(hits, 0.0, 5, Some(49))), [0.0; 0]);
    }

    #[test]
    fn min_score_is_inclusive_and_top_k_bounds() {
        let hits = vec![test_hit("a", 0.9, 1), test_hit("b", 0.5, 1), test_hit("c", 0.4, 1)];
        assert_eq!(scores(&trim(hits.clone(), 0.5, 5, None)), [0.9, 0.5]);
        assert_eq!(scores(&trim(hits, 0.0, 1, None)), [0.9]);
    }
}
