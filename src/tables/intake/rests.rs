//! Which attached tables the worker leaves alone for a while: those that somebody has locked or that cannot
//! be read, and those of owners whose tables take long to read, since conditions and columns may call what
//! users wrote. Nobody else's work waits for them. Pure.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The rest after a fault doubles with each fault in a row, from the first to the second of these.
const FAULT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// A read that takes longer than `LONG` makes all tables of its account rest `TIMES` times as long. Together
/// they get a twentieth of the time, however many they are.
const LONG: Duration = Duration::from_millis(250);
const TIMES: u32 = 20;
/// All accounts with slow tables together get a fifth of the time.
const TIMES_FOR_ALL: u32 = 4;
/// How long an account is remembered as slow after its last rest.
const REMEMBERED: Duration = Duration::from_secs(600);

/// How reading rows of a table ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Rows were read, or one of them cannot be.
    Read,
    /// No row can be read now.
    Fault,
    /// The time limit was reached.
    OverTime,
}

#[derive(Debug, Default)]
struct Rest {
    until: Option<Instant>,
    faults: u32,
    one_by_one: bool,
}

/// Whose time is spent: the role with whose rights a table is read, and the tenant of the knowledge base.
#[derive(Debug, Default, Clone, PartialEq, Eq, Hash)]
pub struct Account {
    pub role_name: String,
    pub tenant_id: String,
}

#[derive(Debug, Default)]
pub struct Rests {
    /// By source_no.
    sources: HashMap<i64, Rest>,
    /// Until when the tables of an account rest, one after the other however many there are.
    accounts: HashMap<Account, Instant>,
    /// When a table of any of these may be read again.
    slow_until: Option<Instant>,
}

impl Rests {
    /// How long a source of an account still rests; None: it does not.
    pub fn left(&self, source_no: i64, account: &Account, now: Instant) -> Option<Duration> {
        let fault = self.sources.get(&source_no).and_then(|rest| rest.until);
        let slow =
            self.accounts.get(account).map(|until| self.slow_until.map_or(*until, |all| all.max(*until)));
        Some(fault.max(slow)?.saturating_duration_since(now)).filter(|left| !left.is_zero())
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

    /// What a worker before has noted: an account still rests for so long.
    pub fn resume(&mut self, account: Account, left: Duration, now: Instant) {
        self.accounts.insert(account, now + left);
    }

    /// Notes how long reading rows of a source took, and how it ended. Returned is how long its account
    /// rests, if that took long.
    pub fn note(
        &mut self,
        source_no: i64,
        account: &Account,
        took: Duration,
        ended: Instant,
        end: End,
    ) -> Option<Duration> {
        let rest = self.sources.entry(source_no).or_default();
        rest.one_by_one |= end == End::OverTime;
        rest.faults = if end == End::Fault { rest.faults + 1 } else { 0 };
        let fault = FAULT.0.saturating_mul(1 << rest.faults.saturating_sub(1).min(16)).min(FAULT.1);
        rest.until = (end == End::Fault).then(|| ended + fault);
        if rest.until.is_none() && !rest.one_by_one {
            self.sources.remove(&source_no);
        }
        if took <= LONG {
            return None;
        }
        self.accounts.retain(|_, until| ended.saturating_duration_since(*until) < REMEMBERED);
        self.accounts.insert(account.clone(), ended + took * TIMES);
        self.slow_until = self.slow_until.max(Some(ended + took * TIMES_FOR_ALL));
        Some(took * TIMES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn of(role_name: &str) -> Account {
        Account { role_name: role_name.into(), tenant_id: "t".into() }
    }

    /// The milliseconds that each reading is followed by a rest of source 1.
    fn rests(rests: &mut Rests, readings: &[(u32, End)]) -> Vec<u128> {
        let ended = Instant::now();
        let each = |(took, end): &(u32, End)| {
            rests.note(1, &of("a"), MS * *took, ended, *end);
            rests.left(1, &of("a"), ended).unwrap_or_default().as_millis()
        };
        readings.iter().map(each).collect()
    }

    #[test]
    fn faults_in_a_row_double_the_rest() {
        let fault = (10, End::Fault);
        let mut all = Rests::default();
        assert_eq!(rests(&mut all, &[fault; 8]), [1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]);
        assert_eq!(rests(&mut all, &[(10, End::Read), fault, (250, End::Read)]), [0, 1000, 0]);
        assert_eq!(rests(&mut all, &[(300, End::Read), (500, End::Fault)]), [6000, 10_000]);
    }

    #[test]
    fn all_tables_of_an_account_share_a_twentieth_of_the_time_those_never_seen_too() {
        let (mut rests, begun) = (Rests::default(), Instant::now());
        assert_eq!(rests.note(1, &of("a"), MS * 5000, begun, End::Read), Some(MS * 100_000));
        for source_no in [1, 2, 3] {
            assert_eq!(rests.left(source_no, &of("a"), begun), Some(MS * 100_000));
        }
        // Not those of another role, or of the role for another tenant.
        let other = Account { tenant_id: "u".into(), ..of("a") };
        assert_eq!((rests.left(4, &of("b"), begun), rests.left(5, &other, begun)), (None, None));
        assert_eq!(rests.note(4, &of("b"), MS * 250, begun, End::Read), None);
        // What another worker noted counts, too.
        let mut next = Rests::default();
        next.resume(of("a"), MS * 90_000, begun);
        assert_eq!(next.left(9, &of("a"), begun), Some(MS * 90_000));
    }

    #[test]
    fn accounts_whose_tables_take_long_wait_for_one_another_and_no_other_does() {
        let (mut rests, begun) = (Rests::default(), Instant::now());
        rests.note(1, &of("a"), MS * 300, begun + MS * 300, End::Read);
        rests.note(2, &of("b"), MS * 5000, begun + MS * 5000, End::Read);
        let now = begun + MS * 6300;
        assert_eq!(rests.left(1, &of("a"), now), Some(MS * (5000 + 20_000 - 6300)));
        assert_eq!(rests.left(2, &of("b"), now), Some(MS * (5000 + 100_000 - 6300)));
        assert_eq!(rests.left(3, &of("c"), now), None);
    }

    #[test]
    fn what_is_over_its_time_is_read_one_by_one_until_that_went_well() {
        let (mut rests, begun) = (Rests::default(), Instant::now());
        rests.note(1, &of("a"), MS * 5000, begun, End::OverTime);
        assert!(rests.is_one_by_one(1) && !rests.is_one_by_one(2));
        rests.note(1, &of("a"), MS, begun, End::Read);
        assert!(rests.is_one_by_one(1));
        rests.end_one_by_one(1);
        assert!(!rests.is_one_by_one(1));
    }
}
