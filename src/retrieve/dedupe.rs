//! Equal texts answered once.

use super::Hit;
use std::collections::HashSet;

/// Keeps the first of each text (hits come best first).
pub fn distinct(hits: Vec<Hit>) -> Vec<Hit> {
    let mut seen = HashSet::new();
    hits.into_iter().filter(|hit| seen.insert(hit.content_hash.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::test_hit;
    use super::*;

    #[test]
    fn the_best_of_each_text_stays() {
        let hits = vec![test_hit("a", 0.9, 1), test_hit("b", 0.8, 1), test_hit("a", 0.7, 1)];
        let kept: Vec<f64> = distinct(hits).iter().filter_map(|h| h.score).collect();
        assert_eq!(kept, [0.9, 0.8]);
    }
}
