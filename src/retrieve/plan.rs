//! Which scans answer a query by vectors, and how far they look.

use crate::model::vector_db::Scan;

/// Chunks passing a filter up to which they are all compared: about what an HNSW scan looks at
/// anyway, and exact.
pub const EXACT_BELOW: usize = 20_000;

/// One way of looking for the nearest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Chunks at most.
    pub limit: usize,
    pub scan: Scan,
}

impl Step {
    pub fn exact(limit: usize) -> Step {
        Step { limit, scan: Scan::Exact }
    }

    fn index(limit: usize, ef_search: Option<usize>) -> Step {
        Step { limit, scan: Scan::Index { ef_search: self::ef_search(ef_search, limit) } }
    }
}

/// HNSW candidates looked at when nothing else is said: pgvector's default, or twice what is asked
/// for, within pgvector's limits.
fn ef_search(configured: Option<usize>, limit: usize) -> usize {
    configured.unwrap_or(40).max(limit * 2).clamp(1, 1000)
}

/// What to try, in order, until enough rows are found. `matching` is how many chunks pass the filter
/// (None: no filter, so all do). After the last nothing more can be found.
pub fn steps(top_k: usize, dedupe: bool, matching: Option<usize>, ef_search: Option<usize>) -> Vec<Step> {
    let last = if dedupe { Step { limit: top_k, scan: Scan::ExactDistinct } } else { Step::exact(top_k) };
    match matching {
        Some(0) => Vec::new(),
        Some(matching) if matching <= EXACT_BELOW => {
            if dedupe {
                vec![Step::exact(top_k), last]
            } else {
                vec![last]
            }
        }
        _ if dedupe => {
            vec![Step::index(top_k, ef_search), Step::index(several(top_k), ef_search), last]
        }
        _ => vec![Step::index(top_k, ef_search), last],
    }
}

/// So many chunks hold `top_k` different texts, most of the time.
pub fn several(top_k: usize) -> usize {
    top_k * 4 + 16
}

/// Whether a step's rows answer the query: there are enough of them, or the last is already
/// below the least score asked for, so that no further one can qualify.
pub fn is_enough(
    kept: usize,
    top_k: usize,
    found: usize,
    limit: usize,
    last_score: Option<f64>,
    min_score: f64,
) -> bool {
    kept >= top_k || (found >= limit && last_score.is_some_and(|score| score < min_score))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selective_filter_is_scanned_exactly() {
        assert_eq!(steps(5, false, Some(20), None), [Step::exact(5)]);
        let first = steps(5, true, Some(EXACT_BELOW + 1), None)[0];
        assert_eq!(first, Step { limit: 5, scan: Scan::Index { ef_search: 40 } });
        assert!(steps(5, true, Some(0), None).is_empty());
    }

    #[test]
    fn every_plan_ends_in_an_exact_scan() {
        for dedupe in [false, true] {
            for matching in [None, Some(1), Some(EXACT_BELOW * 2)] {
                let last = *steps(7, dedupe, matching, None).last().unwrap();
                assert_eq!(last.limit, 7);
                assert!(matches!(last.scan, Scan::Exact | Scan::ExactDistinct));
            }
        }
    }

    #[test]
    fn too_few_rows_are_enough_only_when_the_rest_cannot_qualify() {
        assert!(is_enough(5, 5, 5, 5, Some(0.1), 0.0));
        assert!(!is_enough(4, 5, 5, 5, Some(0.1), 0.0));
        assert!(is_enough(2, 5, 5, 5, Some(0.1), 0.5));
        // Fewer rows than asked for came back: the index may have missed some.
        assert!(!is_enough(2, 5, 3, 5, Some(0.1), 0.5));
    }

    #[test]
    fn ef_search_stays_in_pgvectors_range() {
        assert_eq!(ef_search(None, 5), 40);
        assert_eq!(ef_search(None, 100), 200);
        assert_eq!(ef_search(Some(64), 5), 64);
        assert_eq!(ef_search(None, 10_000), 1000);
    }
}
