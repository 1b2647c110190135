//! Which builds are to be counted, because they got vectors: seldom enough that counting costs next to
//! nothing. Pure.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

/// A build is counted this often while it grows to the size that matters.
const LOOKS: u64 = 8;
/// Builds that are remembered; then all are forgotten, as they are when the worker ends.
const MOST: usize = 100_000;

/// The pause after one could not be looked at or moved; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// So often; then the pause stays, and nobody waits for it to end.
const PAUSES: u32 = 6;

#[derive(Default)]
pub struct Growth {
    /// Vectors that each build got since it was counted last.
    since: HashMap<i64, u64>,
    due: Vec<i64>,
    random: RandomState,
    pauses: u32,
    resume_at: Option<Instant>,
}

impl Growth {
    /// A build got vectors, and what has `least` of them matters.
    pub fn note(&mut self, build_no: i64, vectors: usize, least: usize) {
        let step = (least as u64 / LOOKS).max(1);
        if self.since.len() >= MOST {
            self.since.clear();
        }
        // Begins anywhere, so that one that gets few vectors from each of many workers is counted now and
        // then, too.
        let since = self.since.entry(build_no).or_insert_with(|| self.random.hash_one(build_no) % step);
        *since += vectors as u64;
        if *since >= step {
            *since = 0;
            self.due.push(build_no);
        }
    }

    /// Those to be counted now.
    pub fn take_due(&mut self, now: Instant) -> Vec<i64> {
        if self.resume_at.is_some_and(|at| at > now) {
            return Vec::new();
        }
        self.due.sort_unstable();
        self.due.dedup();
        std::mem::take(&mut self.due)
    }

    /// One is to be looked at the next time.
    pub fn put_back(&mut self, build_no: i64) {
        self.due.push(build_no);
    }

    /// One could not be looked at, or not be moved: somebody works on its tables.
    pub fn pause(&mut self, now: Instant) {
        self.resume_at = Some(now + FIRST_PAUSE * (1 << self.pauses));
        self.pauses = (self.pauses + 1).min(PAUSES);
    }

    pub fn resume(&mut self) {
        (self.pauses, self.resume_at) = (0, None);
    }

    /// Whether it is worth waiting for the end of a pause.
    pub fn is_pausing(&self) -> bool {
        (1..PAUSES).contains(&self.pauses) && !self.due.is_empty()
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
            counted.extend(growth.take_due(Instant::now()).into_iter().map(|_| vectors));
        }
        assert!((9..=10).contains(&counted.len()), "{counted:?}");
        assert!(counted.iter().any(|at| (800..=900).contains(at)), "{counted:?}");
        growth.note(8, 800, 800);
        growth.note(8, 800, 800);
        let now = Instant::now();
        assert_eq!(growth.take_due(now), [8]);
        growth.put_back(8);
        growth.pause(now);
        assert!(growth.is_pausing() && growth.take_due(now).is_empty());
        assert_eq!(growth.take_due(now + FIRST_PAUSE), [8]);
        assert!(!growth.is_pausing());
        // The longest pause is nobody's reason to stay.
        (0..PAUSES).for_each(|_| growth.pause(now));
        growth.put_back(8);
        assert!(!growth.is_pausing() && growth.take_due(now + Duration::from_secs(60)).is_empty());
        growth.resume();
        assert_eq!(growth.take_due(now), [8]);
    }

    #[test]
    fn what_grows_a_little_in_each_workers_life_is_counted_as_often() {
        let counted = (0..4000).filter(|_| {
            let mut growth = Growth::default();
            growth.note(7, 1, 800);
            !growth.take_due(Instant::now()).is_empty()
        });
        // One in a hundred.
        assert!((10..=100).contains(&counted.count()));
    }
}
