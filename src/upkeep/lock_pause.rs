//! When to try again to get a lock that keeps others waiting while it is waited for. Pure.

use std::time::{Duration, Instant};

/// The pause after the first attempt; it doubles with each.
const FIRST: Duration = Duration::from_secs(1);
/// The pause doubles so often; then it stays the same, and an idle worker leaves rather than wait for it.
const DOUBLED: u32 = 5;

#[derive(Default)]
pub struct LockPause {
    attempts: u32,
    resume_at: Option<Instant>,
}

impl LockPause {
    pub fn is_over(&self, now: Instant) -> bool {
        self.resume_at.is_none_or(|at| at <= now)
    }

    /// The lock could not be had.
    pub fn note(&mut self, now: Instant) {
        self.resume_at = Some(now + FIRST * (1 << self.attempts.min(DOUBLED)));
        self.attempts += 1;
    }

    /// Whether it is worth waiting for the end of the pause.
    pub fn is_short(&self) -> bool {
        self.attempts <= DOUBLED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_doubles_with_each_attempt_and_the_longest_is_nobodys_reason_to_stay() {
        let (mut pause, now) = (LockPause::default(), Instant::now());
        assert!(pause.is_over(now) && pause.is_short());
        for seconds in [1, 2, 4, 8, 16, 32, 32] {
            pause.note(now);
            assert_eq!(pause.is_short(), seconds < 32);
            let end = now + Duration::from_secs(seconds);
            assert!(pause.is_over(end) && !pause.is_over(end - Duration::from_millis(1)));
        }
    }
}
