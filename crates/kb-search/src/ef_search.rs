//! Chooses pgvector's hnsw.ef_search, by default and for a segment of a table.

use crate::vector_segments::Segment;

/// pgvector's default, and the number of vectors up to which it is enough.
const LEAST: usize = 40;
const ENOUGH_FOR: usize = 50_000;
/// The increase for each doubling of the number of vectors.
const MORE_EACH_DOUBLING: f64 = 8.0;

/// pgvector's maximum.
pub const MOST: usize = 1000;

/// The default for this many vectors. A larger graph has more places where a search ends too soon. Measured
/// with 500,000 clustered vectors, where 40 finds nothing near for a few questions in a hundred, and 66 does
/// so for none of 90. (Measuring with a table's own vectors gave values that are too low, because these are
/// in the graph and easier to find than questions.)
pub fn default_for(vectors: usize) -> usize {
    let doublings = (vectors.max(ENOUGH_FOR) as f64 / ENOUGH_FOR as f64).log2();
    LEAST + (MORE_EACH_DOUBLING * doublings) as usize
}

/// The value for the index of one segment of a table of `all` rows, where a single index for all of them
/// would use `whole` and `limit` rows are requested. A smaller graph needs less, but far from in proportion
/// to its rows: the fourth root of its share (measured in bench/, part "grown", where the square root finds
/// too little). For a draft it is half as much again, up to `whole`.
pub fn of_segment(segment: &Segment, whole: usize, limit: usize, all: u64) -> usize {
    let share = match segment.rows {
        // The number of rows is not known.
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
    fn the_default_grows_with_the_number_of_vectors() {
        assert_eq!((default_for(0), default_for(50_000), default_for(100_000)), (40, 40, 48));
        assert!(default_for(500_000) == 66 && default_for(usize::MAX) < MOST);
    }

    #[test]
    fn a_smaller_segment_has_a_smaller_value_with_a_lower_limit() {
        let segment = |rows| Segment { first: 0, last: 9, rows, is_draft: false };
        let of = |rows, whole, limit| of_segment(&segment(rows), whole, limit, 100_000);
        assert_eq!((of(100_000, 250, 10), of(6250, 250, 10), of(10, 250, 10)), (250, 125, 40));
        assert_eq!((of(10, 250, 30), of(10, 20, 10), of(0, 250, 10)), (60, 20, 250));
        let draft = |rows| of_segment(&Segment { is_draft: true, ..segment(rows) }, 250, 10, 100_000);
        assert_eq!((draft(100_000), draft(6250), draft(10)), (250, 188, 40));
        // The count of a segment may exceed the count of the table.
        assert_eq!(of(200_000, 250, 10), 250);
    }
}
