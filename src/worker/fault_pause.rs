//! How long the worker does nothing after a fault of the gateway or the database. Pure.

use kb_types::error::Error;
use std::time::{Duration, Instant};

/// The pause after one fault, and the longest one: it doubles with each fault in a row.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct Backoff {
    faults_in_a_row: u32,
    resume_at: Option<Instant>,
    /// The fault after which the jobs could not be given back; they still have to be.
    unfinished: Option<Error>,
}

impl Backoff {
    /// Counts one more fault in a row, and returns the pause after it.
    pub fn count_fault(&mut self) -> Duration {
        let pause = FIRST.saturating_mul(1 << self.faults_in_a_row.min(10)).min(LONGEST);
        self.faults_in_a_row += 1;
        pause
    }

    /// Something worked: the next fault is the first one again.
    pub fn reset(&mut self) {
        self.faults_in_a_row = 0;
    }

    /// Has the worker do nothing for so long.
    pub fn wait(&mut self, pause: Duration, now: Instant) {
        self.resume_at = Some(now + pause);
    }

    /// Jobs were given back after a fault; they have pauses of their own.
    pub fn wait_shortly(&mut self, now: Instant) {
        self.wait(FIRST, now);
    }

    /// The jobs could not be given back after `fault`. This is tried again after `pause`.
    pub fn postpone(&mut self, fault: Error, pause: Duration, now: Instant) {
        self.unfinished = Some(fault);
        self.wait(pause, now);
    }

    pub fn is_waiting(&self, now: Instant) -> bool {
        self.resume_at.is_some_and(|at| now < at)
    }

    pub fn is_unfinished(&self) -> bool {
        self.unfinished.is_some()
    }

    pub fn take_unfinished(&mut self) -> Option<Error> {
        self.unfinished.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_with_each_fault_in_a_row_up_to_a_minute() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u64> = (0..8).map(|_| backoff.count_fault().as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        backoff.reset();
        assert_eq!(backoff.count_fault(), FIRST);
    }

    #[test]
    fn a_postponed_fault_is_taken_once_when_its_pause_is_over() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        assert!(!backoff.is_waiting(now));
        let fault = Error::Gateway { problem: "is gone".into() };
        backoff.postpone(fault.clone(), Duration::from_secs(3), now);
        assert!(backoff.is_waiting(now + Duration::from_secs(2)) && backoff.is_unfinished());
        assert!(!backoff.is_waiting(now + Duration::from_secs(3)));
        assert_eq!(backoff.take_unfinished(), Some(fault));
        assert_eq!(backoff.take_unfinished(), None);
    }
}
