//! How far an HNSW index is searched, pgvector's hnsw.ef_search: where nobody has set it, and in a part of a table. Pure.

use super::segments::Segment;

/// pgvector's default, and up to how many vectors it is enough.
const LEAST: usize = 40;
const ENOUGH_FOR: usize = 50_000;
/// How much more for each doubling.
const MORE_EACH_DOUBLING: f64 = 8.0;

/// pgvector's largest.
pub const MOST: usize = 1000;

/// What is enough for so many vectors, whatever they are: a larger graph has more places where a search ends too soon. Measured with
/// 500,000 clustered vectors, where 40 finds nothing near for some questions in a hundred and 66 for none of 90. (To measure less than
/// that by a table's own vectors was tried: these are in the graph and easier to find than questions.)
pub fn default_for(vectors: usize) -> usize {
    let doublings = (vectors.max(ENOUGH_FOR) as f64 / ENOUGH_FOR as f64).log2();
    LEAST + (MORE_EACH_DOUBLING * doublings) as usize
}

/// For the index of one segment, of `all` rows in all, where one index for all of them has `whole` and `limit` rows are wanted. A
/// smaller graph finds as much with less, but far from in proportion to its rows: with the fourth root of its share (measured in
/// bench/, part "grown", where the square root finds too little). A draft is searched half as far again, up to `whole`.
pub fn of_segment(segment: &Segment, whole: usize, limit: usize, all: u64) -> usize {
    let share = match segment.rows {
        // Not known.
        0 => 1.0,
        rows => (rows as f64 / all.max(rows) as f64).powf(0.25),
    };
    let least = LEAST.max(limit * 2).min(whole);
    let wanted = whole as f64 * share * if segment.is_draft { 1.5 } else { 1.0 };
    (wanted.ceil() as usize).clamp(least, whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_larger_for_many_vectors_where_nobody_has_set_it() {
        assert_eq!((default_for(0), default_for(50_000), default_for(100_000)), (40, 40, 48));
        assert!(default_for(500_000) == 66 && default_for(usize::MAX) < MOST);
    }

    #[test]
    fn a_smaller_segment_is_searched_with_a_smaller_one_but_not_too_small_a_one() {
        let segment = |rows| Segment { first: 0, last: 9, rows, is_draft: false };
        let of = |rows, whole, limit| of_segment(&segment(rows), whole, limit, 100_000);
        assert_eq!((of(100_000, 250, 10), of(6250, 250, 10), of(10, 250, 10)), (250, 125, 40));
        assert_eq!((of(10, 250, 30), of(10, 20, 10), of(0, 250, 10)), (60, 20, 250));
        let draft = |rows| of_segment(&Segment { is_draft: true, ..segment(rows) }, 250, 10, 100_000);
        assert_eq!((draft(100_000), draft(6250), draft(10)), (250, 188, 40));
        // What is counted of a segment may be more than of all.
        assert_eq!(of(200_000, 250, 10), 250);
    }
}
