//! Plans the scans that answer a query by vectors, and how far they go. The unit of cost is one chunk in an
//! exact scan of listed chunks: looking it up and computing its distance.
//!
//! If few chunks pass a filter, they are listed and compared exactly. Otherwise the first step is a single
//! pass through the index, which goes far enough that enough of its chunks should pass. An iterative scan
//! would always find enough rows, but where the chunks that pass are far from the question, a fifth of its
//! rows are not the nearest (bench, "some clusters"). A scan therefore iterates only where one pass cannot
//! give enough.
//!
//! **Invariant:** a query never returns fewer than top_k rows when more qualify, because every plan ends in
//! an exact scan. (In keyword search, only rows that contain a word of the question qualify.) Where
//! `min_score` leaves fewer rows, the index, which is approximate, is searched again and further before that
//! is accepted ([`second_look`]).

use crate::ef_search;
use kb_types::vector_db::{Forced, Kept, Scan};

/// The most chunks passing a filter that are listed and all compared.
pub const MOST_LISTED: usize = 50_000;

/// Up to this many chunks passing a filter are always all compared, because nothing else is faster.
const FEW: usize = 500;

/// The cost of a chunk that the index scan returns, whether it passes the filter or not. The index visits
/// about `VISITED` vectors for each, and rows are looked up. Measured with 50,000 vectors of 384 dimensions
/// (bench/, part "filters").
const GIVEN: f64 = 7.0;
const VISITED: usize = 12;

/// How much further a second scan of the index goes, to find what the first may have missed.
const FURTHER: usize = 4;

/// pgvector's default of hnsw.max_scan_tuples.
const MOST_VISITED: usize = 20_000;

/// One scan for the nearest vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The most chunks that it returns.
    pub limit: usize,
    pub scan: Scan,
}

impl Step {
    pub fn exact(limit: usize) -> Step {
        Step { limit, scan: Scan::Exact }
    }

    fn index(limit: usize, ef_search: usize) -> Step {
        let ef_search = ef_search.max(limit * 2).clamp(1, ef_search::MOST);
        Step { limit, scan: Scan::Index { ef_search, visits: MOST_VISITED } }
    }

    /// The index scan for a filter that about `kept` of the index's vectors pass.
    fn filtered(limit: usize, ef_search: usize, kept: usize, vectors: usize) -> Step {
        // The number of chunks that the scan returns until enough have passed, if those that pass are spread
        // evenly.
        let given = limit.saturating_mul(vectors.max(kept)) / kept.max(1);
        // Twice as many, so that chance rarely leaves too few.
        let wanted = given.saturating_mul(2);
        let ef_search = ef_search.max(limit * 2).max(wanted).clamp(1, ef_search::MOST);
        // A single pass, because where the chunks that pass are far from the question, an iterative scan
        // returns them in a poor order (measured: it misses a fifth of the nearest). If that is not enough,
        // the exact scan follows. The scan iterates only where one pass cannot give enough.
        let visits = match wanted <= ef_search::MOST {
            true => 0,
            false => wanted.saturating_mul(VISITED).min(i32::MAX as usize),
        };
        Step { limit, scan: Scan::Index { ef_search, visits } }
    }
}

/// A scan of the index that goes further than this one, whose result decides whether no more rows qualify.
/// None if this is not a scan of the index, or no scan goes further.
pub fn second_look(step: Step) -> Option<Step> {
    let Scan::Index { ef_search, visits } = step.scan else { return None };
    let further = ef_search.saturating_mul(FURTHER).min(ef_search::MOST);
    let scan = Scan::Index { ef_search: further, visits };
    (further > ef_search).then_some(Step { limit: step.limit, scan })
}

/// Up to how many chunks that pass a filter are all compared, rather than searched for by an index with
/// `vectors` vectors (None without an index). An exact scan of n chunks costs n, and the index scan costs
/// `GIVEN` for each of the top_k * vectors / n chunks that it returns.
pub fn exact_up_to(top_k: usize, vectors: Option<usize>) -> usize {
    match vectors {
        None => MOST_LISTED,
        Some(vectors) => {
            let cheaper = (top_k as f64 * vectors as f64 * GIVEN).sqrt() as usize;
            // With fewer, one pass through the index does not return twice as many as are needed.
            let one_pass = top_k.saturating_mul(vectors) / (ef_search::MOST / 2);
            cheaper.max(one_pass).clamp(FEW, MOST_LISTED)
        }
    }
}

/// Nanoseconds of an exact scan for each vector (reading the row, its policy, sorting), and for each of its
/// numbers. This is a high estimate, because the rows may have to be read from disk.
const COMPARED: (usize, usize) = (1_500, 1);

/// Whether all of this many vectors are compared in about 10 ms, which is what a far search of a poor index
/// takes.
pub fn is_quick_exactly(vectors: usize, dimension: usize) -> bool {
    vectors.saturating_mul(COMPARED.0 + COMPARED.1 * dimension) <= 10_000_000
}

/// The properties of a query that determine its scans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    pub top_k: usize,
    /// Whether equal texts count once.
    pub dedupe: bool,
    /// How many chunks pass the filter. None without a filter.
    pub kept: Option<Kept>,
    /// The number of vectors in the index. None without an index.
    pub vectors: Option<usize>,
    /// The least ef_search of the knowledge base.
    pub ef_search: Option<usize>,
}

/// The scans to try, in order, until enough rows are found. After the last one nothing more can be found.
pub fn steps(wanted: Wanted, forced: Option<Forced>) -> Vec<Step> {
    let Wanted { top_k, dedupe, kept, vectors, ef_search } = wanted;
    let ef_search = ef_search.unwrap_or_else(|| ef_search::default_for(vectors.unwrap_or_default()));
    let exact = match dedupe {
        // Distinguishing all texts costs more than comparing vectors, and the nearest few are nearly always
        // enough.
        true => vec![Step::exact(several(top_k)), Step { limit: top_k, scan: Scan::ExactDistinct }],
        false => vec![Step::exact(top_k)],
    };
    let index = |first: Step| [vec![first], exact.clone()].concat();
    match (kept, vectors) {
        (Some(Kept::Exactly(0)), _) => Vec::new(),
        (Some(Kept::Exactly(_)), _) if forced != Some(Forced::Index) => exact,
        (Some(_), _) if forced == Some(Forced::Join) => exact,
        (Some(Kept::Exactly(kept) | Kept::About(kept)), Some(vectors)) => {
            index(Step::filtered(top_k, ef_search, kept, vectors))
        }
        (Some(_), None) => exact,
        (None, _) => index(Step::index(top_k, ef_search)),
    }
}

/// The number of chunks that usually contain `top_k` distinct texts.
pub fn several(top_k: usize) -> usize {
    top_k * 4 + 16
}

/// The most chunks that an iterative scan of an index returns, where `top_k` distinct texts are searched for
/// among this many vectors. An exact scan compares about 32 chunks in the time in which the index returns one
/// more.
pub fn most_given(top_k: usize, vectors: Option<usize>) -> usize {
    several(top_k).max(vectors.unwrap_or_default() / 32)
}

/// How many chunks to consider next where `missing` more are needed, and `beyond` have been considered beyond
/// the number needed in all. It is a few at first, because each has to be read, and doubles each time,
/// because one text may occur a hundred times.
pub fn more(missing: usize, beyond: usize) -> usize {
    (2 * missing).max(beyond).max(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Wanted =
        Wanted { top_k: 5, dedupe: false, kept: None, vectors: Some(50_000), ef_search: None };

    fn kept(kept: Kept) -> Wanted {
        Wanted { kept: Some(kept), ..WANTED }
    }

    fn index(ef_search: usize, visits: usize) -> Step {
        Step { limit: 5, scan: Scan::Index { ef_search, visits } }
    }

    #[test]
    fn counted_chunks_are_all_compared_and_more_are_searched_by_the_index() {
        assert_eq!(steps(kept(Kept::Exactly(20)), None), [Step::exact(5)]);
        assert!(steps(kept(Kept::Exactly(0)), None).is_empty());
        assert_eq!(steps(kept(Kept::About(25_000)), None), [index(40, 0), Step::exact(5)]);
        let forced = steps(kept(Kept::Exactly(2500)), Some(Forced::Index));
        assert_eq!(forced, [index(200, 0), Step::exact(5)]);
        assert_eq!(steps(kept(Kept::About(25_000)), Some(Forced::Join)), [Step::exact(5)]);
        let without_index = Wanted { vectors: None, ..kept(Kept::About(25_000)) };
        assert_eq!(steps(without_index, None), [Step::exact(5)]);
    }

    #[test]
    fn the_more_an_index_scan_must_return_the_more_chunks_are_compared() {
        assert_eq!(exact_up_to(10, Some(50_000)), 1870);
        assert_eq!(exact_up_to(1, Some(1_000_000)), 2645);
        assert_eq!((exact_up_to(100, Some(50_000)), exact_up_to(10, Some(2_000_000))), (10_000, 40_000));
        // A few are always compared, and never more than can be listed.
        assert_eq!(exact_up_to(1, Some(100)), FEW);
        assert_eq!((exact_up_to(1, None), exact_up_to(1000, Some(50_000_000))), (MOST_LISTED, MOST_LISTED));
    }

    #[test]
    fn an_exact_scan_of_few_or_short_vectors_is_quick() {
        assert!(
            is_quick_exactly(1_520, 384) && is_quick_exactly(5_000, 384) && is_quick_exactly(2_000, 3_072)
        );
        assert!(!is_quick_exactly(5_500, 384) && !is_quick_exactly(usize::MAX, 384));
    }

    #[test]
    fn a_filtered_index_scan_ends_soon_after_it_can_have_enough() {
        let visits = |top_k, kept: usize, vectors| match Step::filtered(top_k, 40, kept, vectors).scan {
            Scan::Index { visits, .. } => visits,
            _ => 0,
        };
        assert_eq!((visits(10, 2000, 50_000), visits(10, 25_000, 50_000)), (0, 0));
        // One pass returns at most 1,000.
        assert_eq!(visits(1000, 25_000, 50_000), 4000 * VISITED);
        // Wrong statistics do not cause an overflow.
        assert!(visits(10_000, 0, usize::MAX / 4) <= i32::MAX as usize);
    }

    #[test]
    fn every_plan_ends_in_an_exact_scan() {
        for dedupe in [false, true] {
            for kept in [None, Some(Kept::Exactly(1)), Some(Kept::About(40_000))] {
                let wanted = Wanted { top_k: 7, dedupe, kept, ..WANTED };
                let last = *steps(wanted, None).last().unwrap();
                assert_eq!(last.limit, 7, "{wanted:?}");
                assert!(matches!(last.scan, Scan::Exact | Scan::ExactDistinct));
            }
        }
    }

    #[test]
    fn a_second_look_searches_the_index_again_and_further() {
        assert_eq!(second_look(index(40, 7)), Some(index(160, 7)));
        assert_eq!(second_look(index(600, 0)), Some(index(1000, 0)));
        assert_eq!((second_look(index(1000, 0)), second_look(Step::exact(5))), (None, None));
    }

    #[test]
    fn ef_search_stays_in_pgvectors_range() {
        let ef_search = |configured, limit| match Step::index(limit, configured).scan {
            Scan::Index { ef_search, .. } => ef_search,
            _ => 0,
        };
        assert_eq!(ef_search(40, 5), 40);
        assert_eq!(ef_search(40, 100), 200);
        assert_eq!(ef_search(64, 5), 64);
        assert_eq!(ef_search(40, 10_000), 1000);
    }

    #[test]
    fn the_default_ef_search_is_larger_for_a_large_index() {
        let of = |vectors, ef_search| match steps(Wanted { vectors, ef_search, ..WANTED }, None)[0].scan {
            Scan::Index { ef_search, .. } => ef_search,
            _ => 0,
        };
        assert_eq!(of(None, None), 40);
        assert_eq!((of(Some(50_000), None), of(Some(100_000), None), of(Some(500_000), None)), (40, 48, 66));
        assert_eq!(of(Some(500_000), Some(40)), 40);
        assert!(of(Some(usize::MAX), None) < 1000);
    }
}
