//! Decides which segments are merged, and when, for keyword search and for vectors.

/// The number of chunks of a segment, and the number of chunks of older segments that it marks as deleted (0
/// for vectors).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub came: u64,
    pub went: u64,
}

/// A segment is kept while it has at least this many times the chunks of all younger ones together. The
/// number of segments, and the number of times that a chunk is rewritten, therefore grow with the logarithm
/// of the number of chunks.
const RATIO: u64 = 2;

/// The first segment to merge, together with all younger ones. `sizes` are those of the segments of one
/// tenant in a build, or of one table, the oldest first. None if nothing is to be merged. When more than a
/// fifth of all chunks are deleted, all segments are merged.
pub fn first_to_merge(sizes: &[Size]) -> Option<usize> {
    let came: u64 = sizes.iter().map(|size| size.came).sum();
    let went: u64 = sizes.iter().map(|size| size.went).sum();
    if went * 5 > came {
        return Some(0);
    }
    first_of_many(sizes)
}

/// Like [`first_to_merge`], but only for the youngest segments that have at most `most` chunks together, and
/// without regard to deleted chunks.
pub fn first_to_merge_within(sizes: &[Size], most: u64) -> Option<usize> {
    let mut sum = 0;
    let within = sizes.iter().rev().take_while(|size| {
        sum += size.came + size.went;
        sum <= most
    });
    let older = sizes.len() - within.count();
    first_of_many(&sizes[older..]).map(|first| older + first)
}

/// The first of the segments that are too many for their sizes.
fn first_of_many(sizes: &[Size]) -> Option<usize> {
    let mut first = None;
    let mut younger = 0;
    for (n, size) in sizes.iter().enumerate().rev() {
        let chunks = size.came + size.went;
        if younger > 0 && chunks < RATIO * younger {
            first = Some(n);
        }
        younger += chunks;
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(sizes: &[(u64, u64)]) -> Option<usize> {
        let sizes: Vec<Size> = sizes.iter().map(|&(came, went)| Size { came, went }).collect();
        first_to_merge(&sizes)
    }

    #[test]
    fn young_segments_are_merged_when_they_have_as_much_as_older_ones() {
        assert_eq!(first(&[]), None);
        assert_eq!(first(&[(1000, 0)]), None);
        assert_eq!(first(&[(1000, 0), (1000, 0)]), Some(0));
        assert_eq!(first(&[(9000, 0), (300, 0)]), None);
        assert_eq!(first(&[(9000, 0), (300, 0), (300, 0)]), Some(1));
        assert_eq!(first(&[(300, 0), (9000, 0)]), Some(0));
    }

    #[test]
    fn all_segments_are_merged_when_a_fifth_of_the_chunks_is_deleted() {
        assert_eq!(first(&[(1000, 0), (0, 200)]), None);
        assert_eq!(first(&[(1000, 0), (0, 201)]), Some(0));
        // There is no older segment whose chunks the oldest could mark as deleted.
        assert_eq!(first(&[(0, 1)]), Some(0));
    }

    #[test]
    fn young_segments_are_merged_even_if_all_together_are_too_large() {
        let within = |sizes: &[(u64, u64)], most| {
            let sizes: Vec<Size> = sizes.iter().map(|&(came, went)| Size { came, went }).collect();
            first_to_merge_within(&sizes, most)
        };
        let sizes = [(9000, 0), (5000, 0), (300, 0), (300, 0), (100, 200)];
        assert_eq!(first(&sizes), Some(0));
        assert_eq!(
            (within(&sizes, 20_000), within(&sizes, 6000), within(&sizes, 599)),
            (Some(0), Some(2), None)
        );
        // A single segment is kept, whatever it marks as deleted.
        assert_eq!(
            (within(&[(9000, 0), (10, 90)], 100), within(&[(9000, 0)], 100), within(&[], 100)),
            (None, None, None)
        );
    }

    #[test]
    fn segments_stay_few_and_chunks_are_rarely_rewritten() {
        let (mut sizes, mut written) = (Vec::new(), 0);
        for _ in 0..10_000 {
            sizes.push(Size { came: 256, went: 0 });
            while let Some(first) = first_to_merge(&sizes) {
                let came = sizes.drain(first..).map(|size| size.came).sum();
                sizes.push(Size { came, went: 0 });
                written += came;
            }
            assert!(sizes.len() <= 12, "{sizes:?}");
        }
        let times = written / (10_000 * 256);
        assert!(times <= 20, "each chunk was written {times} times");
    }
}
