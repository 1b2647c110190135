//! Which builds are to be counted, because they got vectors: seldom enough that counting costs next to nothing. Pure.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// A build is counted this often while it grows to the size that matters.
const LOOKS: u64 = 8;
/// Builds that are remembered; then all are forgotten, as they are when the worker ends.
const MOST: usize = 100_000;

#[derive(Default)]
pub struct Growth {
    /// Vectors that each build got since it was counted last.
    since: HashMap<i64, u64>,
    due: Vec<i64>,
    random: RandomState,
}

impl Growth {
    /// A build got vectors, and what has `least` of them matters.
    pub fn note(&mut self, build_no: i64, vectors: usize, least: usize) {
        let step = (least as u64 / LOOKS).max(1);
        if self.since.len() >= MOST {
            self.since.clear();
        }
        // Begins anywhere, so that one that gets few vectors from each of many workers is counted now and then, too.
        let since = self.since.entry(build_no).or_insert_with(|| self.random.hash_one(build_no) % step);
        *since += vectors as u64;
        if *since >= step {
            *since = 0;
            self.due.push(build_no);
        }
    }

    /// Those to be counted now.
    pub fn take_due(&mut self) -> Vec<i64> {
        self.due.sort_unstable();
        self.due.dedup();
        std::mem::take(&mut self.due)
    }

    /// One could not be looked at: it is the next time.
    pub fn put_back(&mut self, build_no: i64) {
        self.due.push(build_no);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_at_once_is_counted_when_it_is_large_and_a_few_times_before() {
        let mut growth = Growth::default();
        let mut counted = Vec::new();
        for vectors in 1..=1000 {
            growth.note(7, 1, 800);
            counted.extend(growth.take_due().into_iter().map(|_| vectors));
        }
        assert!((9..=10).contains(&counted.len()), "{counted:?}");
        assert!(counted.iter().any(|at| (800..=900).contains(at)), "{counted:?}");
        growth.note(8, 800, 800);
        growth.note(8, 800, 800);
        assert_eq!(growth.take_due(), [8]);
        growth.put_back(8);
        assert_eq!(growth.take_due(), [8]);
    }

    #[test]
    fn what_grows_a_little_in_each_workers_life_is_counted_as_often() {
        let counted = (0..4000).filter(|_| {
            let mut growth = Growth::default();
            growth.note(7, 1, 800);
            !growth.take_due().is_empty()
        });
        // One in a hundred.
        assert!((10..=100).contains(&counted.count()));
    }
}
