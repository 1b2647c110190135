//! Whether a knowledge base waits, because too many of its vectors have no index yet. Pure.

use std::time::{Duration, Instant};

/// How long is waited for an index at most that does not get on: an old transaction may be what it waits for.
const PATIENCE: Duration = Duration::from_secs(20);

/// Whether a knowledge base waits.
#[derive(Debug, Default)]
pub struct BackPressure {
    is_held: bool,
    /// While there are too many: how many there were when that was last looked at, how far the index was, and since when neither
    /// got better.
    over: Option<(u64, Progress, Instant)>,
}

/// How far an index is that is being built: another value at another time; None: none is.
pub type Progress = Option<(String, i64)>;

impl BackPressure {
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// `segments` have an index, and `unindexed` vectors none, which are to be `most` at most, about; `progress` of an index of theirs.
    /// The first index is begun late while documents come: until it is there, more may be without one.
    pub fn judge(
        &mut self,
        (segments, unindexed): (usize, u64),
        progress: Progress,
        most: u64,
        now: Instant,
    ) {
        let most = if segments > 0 { most } else { most + most / 2 };
        if unindexed < most {
            *self = BackPressure::default();
            return;
        }
        let since = match self.over.take() {
            Some((before, then, since)) if before <= unindexed && then == progress => since,
            _ => now,
        };
        self.over = Some((unindexed, progress, since));
        self.is_held = now.saturating_duration_since(since) < PATIENCE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_knowledge_base_waits_for_an_index_but_not_for_ever_for_one_that_does_not_come() {
        let begun = Instant::now();
        let mut pressure = BackPressure::default();
        let mut is_held = |unindexed, seconds| {
            pressure.judge((3, unindexed), None, 20_000, begun + Duration::from_secs(seconds));
            pressure.is_held()
        };
        assert!(!is_held(19_999, 0) && is_held(20_000, 0) && is_held(20_300, 19));
        // Another index was built, and more than is wanted is left.
        assert!(is_held(20_100, 19) && !is_held(20_100, 40));
        assert!(is_held(20_050, 41) && is_held(20_050, 60) && !is_held(30_000, 61), "it falls once more");
        assert!(!is_held(31_000, 70) && !is_held(5_000, 71) && is_held(21_000, 72), "it begins anew");
    }

    #[test]
    fn a_knowledge_base_waits_for_as_long_as_its_index_gets_on() {
        let begun = Instant::now();
        let mut pressure = BackPressure::default();
        let mut is_held = |phase: &str, done, seconds| {
            let now = begun + Duration::from_secs(seconds);
            pressure.judge((3, 21_000), Some((phase.to_string(), done)), 20_000, now);
            pressure.is_held()
        };
        assert!(is_held("building", 1000, 0) && is_held("building", 1001, 19) && is_held("building", 1002, 38));
        assert!(is_held("building", 1002, 57) && !is_held("building", 1002, 58), "it stands still");
        assert!(is_held("building", 1003, 59) && is_held("validating", 1003, 78) && is_held("validating", 3, 97));
        assert!(is_held("validating", 3, 116) && !is_held("validating", 3, 117));
    }

    #[test]
    fn the_first_index_is_begun_before_anything_waits_for_it() {
        let mut pressure = BackPressure::default();
        pressure.judge((0, 29_999), None, 20_000, Instant::now());
        assert!(!pressure.is_held());
        pressure.judge((0, 30_000), None, 20_000, Instant::now());
        assert!(pressure.is_held());
    }
}
