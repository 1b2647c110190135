//! Which segments are merged, and when: those of keyword search, and those of vectors.

/// How many chunks came with a segment, and how many of older segments it says are gone (of vectors: 0).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub came: u64,
    pub went: u64,
}

/// A segment stays while it has at least so many times the chunks of all younger ones together. Their number grows with the
/// logarithm of the chunks, and so does how often a chunk is written again.
const RATIO: u64 = 2;

/// The first of the segments to merge with all younger ones; `sizes` are those of one tenant's segments in a build, or of one
/// table's, the oldest first. None: they stay as they are. When more than a fifth of all chunks are gone, all are merged.
pub fn first_to_merge(sizes: &[Size]) -> Option<usize> {
    let came: u64 = sizes.iter().map(|size| size.came).sum();
    let went: u64 = sizes.iter().map(|size| size.went).sum();
    if went * 5 > came {
        return Some(0);
    }
    first_of_many(sizes)
}

/// As [`first_to_merge`], of the youngest that have `most` chunks at most together; their number only counts.
pub fn first_to_merge_within(sizes: &[Size], most: u64) -> Option<usize> {
    let mut sum = 0;
    let within = sizes.iter().rev().take_while(|size| {
        sum += size.came + size.went;
        sum <= most
    });
    let older = sizes.len() - within.count();
    first_of_many(&sizes[older..]).map(|first| older + first)
}

/// The first of those that are many for their size.
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
    fn young_ones_are_merged_when_they_have_as_much_as_older_ones() {
        assert_eq!(first(&[]), None);
        assert_eq!(first(&[(1000, 0)]), None);
        assert_eq!(first(&[(1000, 0), (1000, 0)]), Some(0));
        assert_eq!(first(&[(9000, 0), (300, 0)]), None);
        assert_eq!(first(&[(9000, 0), (300, 0), (300, 0)]), Some(1));
        assert_eq!(first(&[(300, 0), (9000, 0)]), Some(0));
    }

    #[test]
    fn all_are_merged_when_a_fifth_is_gone() {
        assert_eq!(first(&[(1000, 0), (0, 200)]), None);
        assert_eq!(first(&[(1000, 0), (0, 201)]), Some(0));
        // What the oldest says is gone is nowhere.
        assert_eq!(first(&[(0, 1)]), Some(0));
    }

    #[test]
    fn young_ones_are_merged_though_all_together_are_too_large() {
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
        // One alone stays as it is, whatever it says is gone.
        assert_eq!(
            (within(&[(9000, 0), (10, 90)], 100), within(&[(9000, 0)], 100), within(&[], 100)),
            (None, None, None)
        );
    }

    #[test]
    fn segments_stay_few_and_chunks_are_seldom_written_again() {
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
