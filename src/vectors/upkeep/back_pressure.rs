//! Whether a knowledge base waits, because too many of its vectors have no index yet. Pure.
//!
//! The worker claims nothing more for such a knowledge base, edits neither, but not for ever: vectors that
//! are nearly uniform are indexed at a tenth of the rate at which provider `hash` brings them, so an import
//! that waited for its whole index would take as much longer.

use std::time::{Duration, Instant};

/// How long is waited for an index at most while the number of vectors without one does not fall: an old
/// transaction may be what it waits for.
const PATIENCE: Duration = Duration::from_secs(20);

/// Whether a knowledge base waits.
#[derive(Debug, Default)]
pub struct BackPressure {
    is_held: bool,
    /// While there are too many: how many there were when that was last looked at, and since when they did
    /// not fall.
    over: Option<(u64, Instant)>,
}

impl BackPressure {
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// `segments` have an index, and `unindexed` vectors none, which are to be `most` at most, about. The
    /// first index is begun late while documents come: until it is there, more may be without one.
    pub fn judge(&mut self, (segments, unindexed): (usize, u64), most: u64, now: Instant) {
        let most = if segments > 0 { most } else { most + most / 2 };
        if unindexed < most {
            *self = BackPressure::default();
            return;
        }
        let (before, since) = *self.over.get_or_insert((unindexed, now));
        let since = if unindexed < before { now } else { since };
        self.over = Some((unindexed, since));
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
            pressure.judge((3, unindexed), 20_000, begun + Duration::from_secs(seconds));
            pressure.is_held()
        };
        assert!(!is_held(19_999, 0) && is_held(20_000, 0) && is_held(20_300, 19));
        // Another index was built, and more than is wanted is left.
        assert!(is_held(20_100, 19) && !is_held(20_100, 40));
        assert!(is_held(20_050, 41) && is_held(20_050, 60) && !is_held(30_000, 61), "it falls once more");
        assert!(!is_held(31_000, 70) && !is_held(5_000, 71) && is_held(21_000, 72), "it begins anew");
    }

    #[test]
    fn the_first_index_is_begun_before_anything_waits_for_it() {
        let mut pressure = BackPressure::default();
        pressure.judge((0, 29_999), 20_000, Instant::now());
        assert!(!pressure.is_held());
        pressure.judge((0, 30_000), 20_000, Instant::now());
        assert!(pressure.is_held());
    }
}
