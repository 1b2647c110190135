//! Which scans answer a query by vectors, and how far they look. What a scan costs is counted in chunks that
//! an exact scan of listed chunks compares: looking one up, and computing its distance.
//!
//! Where a filter keeps little, the chunks that pass are listed and compared exactly. Otherwise one pass
//! through the index comes first, which looks so far that it should give enough that pass. A scan that
//! iterates would find as many rows wherever they are, but where what passes lies far from the question a
//! fifth of them are not the nearest (bench, "some clusters"). So a scan iterates only where one pass cannot
//! give enough.
//!
//! **Invariant:** a query never returns fewer than top_k rows when more qualify, because every plan ends in
//! an exact scan. (By words, only rows that have a word of the question qualify.) Where `min_score` leaves
//! fewer, an index, which is approximate, is asked once more, further, before that is believed
//! ([`second_look`]).

use crate::ef_search;
use kb_types::vector_db::{Forced, Kept, Scan};

/// Chunks passing a filter that are listed at most, and compared all.
pub const MOST_LISTED: usize = 50_000;

/// Chunks passing a filter up to which they are always compared all: as quick as anything else.
const FEW: usize = 500;

/// What a chunk costs that the index scan gives, whether it passes the filter or not. The index visits about `VISITED` vectors
/// for each, and its rows are looked up. Measured with 50,000 vectors of 384 dimensions (bench/, part "filters").
const GIVEN: f64 = 7.0;
const VISITED: usize = 12;

/// How much further a second scan of the index looks that is to find what the first may have missed.
const FURTHER: usize = 4;

/// pgvector's default of hnsw.max_scan_tuples.
const MOST_VISITED: usize = 20_000;

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

    fn index(limit: usize, ef_search: usize) -> Step {
        let ef_search = ef_search.max(limit * 2).clamp(1, ef_search::MOST);
        Step { limit, scan: Scan::Index { ef_search, visits: MOST_VISITED } }
    }

    /// The index scan for a filter that keeps about `kept` of the index's vectors.
    fn filtered(limit: usize, ef_search: usize, kept: usize, vectors: usize) -> Step {
        // The scan gives so many chunks until enough of them have passed, if what passes is spread evenly.
        let given = limit.saturating_mul(vectors.max(kept)) / kept.max(1);
        // Twice as many, so that chance seldom leaves too few.
        let wanted = given.saturating_mul(2);
        let ef_search = ef_search.max(limit * 2).max(wanted).clamp(1, ef_search::MOST);
        // All at once: where what passes lies far from the question, a scan that goes on gives it in a poor order (measured: it
        // misses a fifth of the nearest). The exact scan follows instead. Only where one pass cannot give enough it goes on.
        let visits = match wanted <= ef_search::MOST {
            true => 0,
            false => wanted.saturating_mul(VISITED).min(i32::MAX as usize),
        };
        Step { limit, scan: Scan::Index { ef_search, visits } }
    }
}

/// A scan of the index that looks further than this one: what it finds decides whether there is no more that qualifies. None:
/// this is no scan of the index, or none looks further.
pub fn second_look(step: Step) -> Option<Step> {
    let Scan::Index { ef_search, visits } = step.scan else { return None };
    let further = ef_search.saturating_mul(FURTHER).min(ef_search::MOST);
    let scan = Scan::Index { ef_search: further, visits };
    (further > ef_search).then_some(Step { limit: step.limit, scan })
}

/// How many chunks that pass a filter are compared all rather than looked for by an index with so many vectors (None: there
/// is no index). An exact scan of n costs n, and the index scan `GIVEN` for each of the top_k * vectors / n that it gives.
pub fn exact_up_to(top_k: usize, vectors: Option<usize>) -> usize {
    match vectors {
        None => MOST_LISTED,
        Some(vectors) => {
            let cheaper = (top_k as f64 * vectors as f64 * GIVEN).sqrt() as usize;
            // Of fewer one pass through the index does not give twice as many as are wanted.
            let one_pass = top_k.saturating_mul(vectors) / (ef_search::MOST / 2);
            cheaper.max(one_pass).clamp(FEW, MOST_LISTED)
        }
    }
}

/// Nanoseconds of an exact scan for each vector, and for each of its numbers beside that: reading the row, its policy, sorting. An estimate
/// on the safe side, since what is compared here may have to be read from disk.
const COMPARED: (usize, usize) = (1_500, 1);

/// Whether all of so many vectors are compared in 10 ms, about, which is what searching a poor index far takes.
pub fn is_quick_exactly(vectors: usize, dimension: usize) -> bool {
    vectors.saturating_mul(COMPARED.0 + COMPARED.1 * dimension) <= 10_000_000
}

/// What a query looks for, as far as it decides its scans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    pub top_k: usize,
    /// Equal texts count once.
    pub dedupe: bool,
    /// What the filter keeps; None: there is none.
    pub kept: Option<Kept>,
    /// Vectors in the index; None: there is no index.
    pub vectors: Option<usize>,
    /// The knowledge base's own least ef_search.
    pub ef_search: Option<usize>,
}

/// What to try, in order, until enough rows are found. After the last nothing more can be found.
pub fn steps(wanted: Wanted, forced: Option<Forced>) -> Vec<Step> {
    let Wanted { top_k, dedupe, kept, vectors, ef_search } = wanted;
    let ef_search = ef_search.unwrap_or_else(|| ef_search::default_for(vectors.unwrap_or_default()));
    let exact = match dedupe {
        // Telling all texts apart costs more than comparing vectors, and nearly always the nearest few are enough.
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

/// So many chunks hold `top_k` different texts, most of the time.
pub fn several(top_k: usize) -> usize {
    top_k * 4 + 16
}

/// How many chunks a scan of an index that goes on gives at most, where `top_k` different texts are looked for among so many vectors:
/// to find out how near another 32 are takes an exact scan about as long as it takes the index to give one more.
pub fn most_given(top_k: usize, vectors: Option<usize>) -> usize {
    several(top_k).max(vectors.unwrap_or_default() / 32)
}

/// How many chunks are looked at next where `missing` more are wanted, and `beyond` were looked at beyond as many as are wanted in all:
/// a few, since each has to be read, and as many again each time, since one text may be there a hundred times.
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
    fn what_was_counted_is_compared_all_and_what_is_more_is_looked_for_by_the_index() {
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
    fn the_more_an_index_scan_has_to_give_the_more_chunks_are_rather_compared_all() {
        assert_eq!(exact_up_to(10, Some(50_000)), 1870);
        assert_eq!(exact_up_to(1, Some(1_000_000)), 2645);
        assert_eq!((exact_up_to(100, Some(50_000)), exact_up_to(10, Some(2_000_000))), (10_000, 40_000));
        // Few are always compared, and never more than can be listed.
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
        // One pass gives at most 1,000.
        assert_eq!(visits(1000, 25_000, 50_000), 4000 * VISITED);
        // Statistics that are wrong overflow nothing.
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
    fn a_second_look_is_at_the_index_again_and_further() {
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
    fn ef_search_is_larger_in_a_large_index_where_nobody_has_set_it() {
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
