//! Which attached tables the worker leaves alone for a while: those that somebody has locked or that cannot be read, and those
//! whose reading takes long, since conditions and columns may call what users wrote. Nobody else's work waits for them. Pure.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// After a fault: doubled with each one in a row, up to the last.
const FAULT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Reading took long if it took more than this; then the table rests so many times as long: it has a twentieth of the time.
const LONG: Duration = Duration::from_millis(250);
const TIMES: u32 = 20;
/// All tables together whose reading takes long have a fifth of the time.
const TIMES_FOR_ALL: u32 = 4;

/// How reading rows of a table ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Rows were read, or one of them cannot be.
    Read,
    /// No row can be read now.
    Fault,
    /// The time was over.
    OverTime,
}

#[derive(Debug, Default)]
struct Rest {
    until: Option<Instant>,
    faults: u32,
    is_slow: bool,
    one_by_one: bool,
}

/// By source_no.
#[derive(Debug, Default)]
pub struct Rests {
    sources: HashMap<i64, Rest>,
    /// When a table whose reading takes long may be read again.
    slow_until: Option<Instant>,
}

impl Rests {
    /// How long a source still rests; None: it does not.
    pub fn left(&self, source_no: i64, now: Instant) -> Option<Duration> {
        let rest = self.sources.get(&source_no)?;
        let until = if rest.is_slow { rest.until.max(self.slow_until) } else { rest.until };
        Some(until?.saturating_duration_since(now)).filter(|left| !left.is_zero())
    }

    /// Whether its rows are to be read one by one, since some together took too long.
    pub fn is_one_by_one(&self, source_no: i64) -> bool {
        self.sources.get(&source_no).is_some_and(|rest| rest.one_by_one)
    }

    /// Some rows were read one by one, and none of them took long.
    pub fn end_one_by_one(&mut self, source_no: i64) {
        if let Some(rest) = self.sources.get_mut(&source_no) {
            rest.one_by_one = false;
        }
    }

    /// Notes how long reading rows of a source took, and how it ended.
    pub fn note(&mut self, source_no: i64, took: Duration, ended: Instant, end: End) {
        let is_slow = took > LONG;
        if end == End::Read && !is_slow && !self.is_one_by_one(source_no) {
            self.sources.remove(&source_no);
            return;
        }
        let rest = self.sources.entry(source_no).or_default();
        rest.is_slow = is_slow;
        rest.one_by_one |= end == End::OverTime;
        let fault = match end {
            End::Fault => FAULT.0.saturating_mul(1 << rest.faults.min(16)).min(FAULT.1),
            _ => Duration::ZERO,
        };
        rest.faults = if end == End::Fault { rest.faults + 1 } else { 0 };
        let slow = if is_slow { took * TIMES } else { Duration::ZERO };
        rest.until = Some(ended + fault.max(slow));
        if is_slow {
            self.slow_until = self.slow_until.max(Some(ended + took * TIMES_FOR_ALL));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The milliseconds that each reading is followed by a rest of source 1.
    fn rests(rests: &mut Rests, readings: &[(u32, End)]) -> Vec<u128> {
        let ended = Instant::now();
        let each = |(took, end): &(u32, End)| {
            rests.note(1, MS * *took, ended, *end);
            rests.left(1, ended).unwrap_or_default().as_millis()
        };
        readings.iter().map(each).collect()
    }

    #[test]
    fn faults_in_a_row_double_the_rest_and_what_takes_long_has_a_twentieth_of_the_time() {
        let mut all = Rests::default();
        let fault = (10, End::Fault);
        assert_eq!(rests(&mut all, &[fault; 8]), [1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]);
        assert_eq!(rests(&mut all, &[(10, End::Read), fault, (250, End::Read)]), [0, 1000, 0]);
        assert_eq!(rests(&mut all, &[(300, End::Read), (300, End::Fault)]), [6000, 6000]);
        assert_eq!(rests(&mut all, &[(1, End::Read)]), [0]);
    }

    #[test]
    fn tables_that_take_long_wait_for_one_another_and_no_other_does() {
        let (mut rests, begun) = (Rests::default(), Instant::now());
        rests.note(1, MS * 300, begun + MS * 300, End::Read);
        rests.note(2, MS * 5000, begun + MS * 5000, End::Read);
        let now = begun + MS * 6300;
        assert_eq!(rests.left(1, now), Some(MS * (5000 + 20_000 - 6300)));
        assert_eq!(rests.left(2, now), Some(MS * (5000 + 100_000 - 6300)));
        assert_eq!(rests.left(3, now), None);
    }

    #[test]
    fn what_is_over_its_time_is_read_one_by_one_until_that_went_well() {
        let (mut rests, begun) = (Rests::default(), Instant::now());
        rests.note(1, MS * 5000, begun, End::OverTime);
        assert!(rests.is_one_by_one(1) && !rests.is_one_by_one(2));
        rests.note(1, MS, begun, End::Read);
        assert!(rests.is_one_by_one(1) && rests.left(1, begun).is_none());
        rests.end_one_by_one(1);
        assert!(!rests.is_one_by_one(1));
    }
}
