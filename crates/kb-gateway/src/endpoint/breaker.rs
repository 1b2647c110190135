//! A circuit breaker per endpoint: after repeated faults it opens, and nothing is sent for a while; then it
//! is half open, one request probes, and its success closes the breaker (Nygard, Release It!, 2007). The
//! probe is a request that no endpoint has reason to refuse: one that the endpoint breaks on would keep the
//! breaker open.
//!
//! If the first probe after an opening succeeds, it was a false alarm, and the next opening takes twice as
//! many faults. So a text that breaks an endpoint uses up its attempts, even if it is always alone in its
//! requests.

use kb_types::sync::lock;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Faults in a row that open it.
const FAULTS: u32 = 5;
/// How often that number may double. It does when the first probe after an opening succeeds: then single
/// requests were to blame, and must get through all their attempts.
const DOUBLINGS: u32 = 4;
/// How long it stays open: doubled each time the probe fails, up to the last.
const OPEN: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));
/// A false alarm counts for so long.
const REMEMBERED: Duration = Duration::from_secs(600);
/// A probe that has no result after so long is given up.
const PROBE: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub struct Breaker {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    faults: u32,
    /// Times it opened since the last success.
    openings: u32,
    open_until: Option<Instant>,
    /// A probe is in flight.
    probing: bool,
    /// Openings whose first probe succeeded, and when the last of them was.
    false_alarms: u32,
    alarmed: Option<Instant>,
    /// The last fault, in words that everybody may read.
    problem: String,
}

/// Whether a request is one of many, or the half-open probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    Free,
    Probe,
}

/// Nothing may be sent for so long, after this fault.
#[derive(Debug, Clone, PartialEq)]
pub struct Open {
    pub wait: Duration,
    pub problem: String,
}

impl Breaker {
    /// Whether a request may go now; if not, how long nothing will. The first to come after the pause is the
    /// probe, and the others wait for what it finds.
    pub fn admit(&self, now: Instant) -> Result<Pass, Open> {
        let mut state = lock(&self.state);
        match state.open_until {
            None => Ok(Pass::Free),
            Some(until) if until > now => {
                Err(Open { wait: (until - now).min(OPEN.1), problem: state.problem.clone() })
            }
            Some(_) => {
                state.open_until = Some(now + PROBE);
                state.probing = true;
                Ok(Pass::Probe)
            }
        }
    }

    /// The same, without becoming the probe.
    pub fn look(&self, now: Instant) -> Result<(), Open> {
        let state = lock(&self.state);
        match state.open_until {
            Some(until) if until > now => {
                Err(Open { wait: (until - now).min(OPEN.1), problem: state.problem.clone() })
            }
            _ => Ok(()),
        }
    }

    /// An answer came, whatever it said of the request.
    pub fn succeed(&self) {
        let mut state = lock(&self.state);
        let is_false_alarm = state.probing && state.openings == 1;
        let false_alarms = (state.false_alarms + u32::from(is_false_alarm)).min(DOUBLINGS);
        let alarmed = state.alarmed;
        *state = State { false_alarms, alarmed, ..State::default() };
    }

    /// The probe was not sent.
    pub fn abandon(&self, now: Instant) {
        let mut state = lock(&self.state);
        if std::mem::take(&mut state.probing) {
            state.open_until = Some(now);
        }
    }

    /// No usable answer came to a request that had this pass.
    pub fn fault(&self, now: Instant, problem: &str, pass: Pass) {
        let mut state = lock(&self.state);
        state.faults += 1;
        state.problem = problem.to_string();
        let is_probe = state.probing && pass == Pass::Probe;
        // Requests that were under way when it opened say nothing new.
        if state.open_until.is_some() && !is_probe {
            return;
        }
        if state.alarmed.is_none_or(|at| now.duration_since(at) > REMEMBERED) {
            state.false_alarms = 0;
        }
        if is_probe || state.faults >= FAULTS << state.false_alarms {
            if is_probe {
                state.false_alarms = 0;
            }
            state.alarmed = Some(now);
            state.probing = false;
            let pause = OPEN.0.saturating_mul(1 << state.openings.min(10)).min(OPEN.1);
            state.open_until = Some(now + pause);
            state.openings += 1;
        }
    }

    pub fn is_open(&self, now: Instant) -> bool {
        lock(&self.state).open_until.is_some_and(|until| until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_after_repeated_faults_probes_once_and_closes_on_success() {
        let (breaker, start) = (Breaker::default(), Instant::now());
        for _ in 0..FAULTS {
            assert!(breaker.admit(start).is_ok());
            breaker.fault(start, "x", Pass::Free);
        }
        assert!(breaker.is_open(start));
        assert_eq!(breaker.admit(start).unwrap_err(), Open { wait: OPEN.0, problem: "x".into() });
        let later = start + OPEN.0;
        assert!(breaker.admit(later).is_ok());
        assert!(breaker.admit(later).is_err(), "one probe at a time");
        breaker.succeed();
        assert!(breaker.admit(later).is_ok());
        assert!(breaker.admit(later).is_ok());
    }

    #[test]
    fn a_false_alarm_raises_the_number_of_faults_and_a_true_one_takes_that_back() {
        let (breaker, mut now) = (Breaker::default(), Instant::now());
        let faults_to_open = |now: Instant| {
            let mut faults = 0;
            while !breaker.is_open(now) {
                breaker.fault(now, "x", Pass::Free);
                faults += 1;
            }
            faults
        };
        for expected in [5, 10, 20, 40, 80, 80] {
            assert_eq!(faults_to_open(now), expected);
            now += OPEN.0;
            assert_eq!(breaker.admit(now), Ok(Pass::Probe));
            breaker.succeed();
            assert_eq!(breaker.admit(now), Ok(Pass::Free));
        }
        faults_to_open(now);
        now += OPEN.0;
        breaker.admit(now).unwrap();
        breaker.fault(now, "x", Pass::Probe);
        now += OPEN.1;
        breaker.admit(now).unwrap();
        breaker.succeed();
        assert_eq!(faults_to_open(now), 5);
        // Nor do they count for ever.
        now += OPEN.0;
        breaker.admit(now).unwrap();
        breaker.succeed();
        now += REMEMBERED * 2;
        assert_eq!(faults_to_open(now), 5);
    }

    #[test]
    fn a_probe_that_is_not_sent_is_left_to_the_next() {
        let (breaker, mut now) = (Breaker::default(), Instant::now());
        for _ in 0..FAULTS {
            breaker.fault(now, "x", Pass::Free);
        }
        now += OPEN.0;
        assert_eq!(breaker.admit(now), Ok(Pass::Probe));
        breaker.abandon(now);
        assert_eq!(breaker.admit(now), Ok(Pass::Probe));
    }

    #[test]
    fn a_failed_probe_doubles_the_pause_up_to_the_longest() {
        let (breaker, mut now) = (Breaker::default(), Instant::now());
        for _ in 0..FAULTS {
            breaker.fault(now, "x", Pass::Free);
        }
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let pause = breaker.admit(now).unwrap_err().wait;
            pauses.push(pause.as_secs());
            now += pause;
            let pass = breaker.admit(now).unwrap();
            // One that was under way before says nothing of the probe.
            breaker.fault(now, "x", Pass::Free);
            breaker.fault(now, "x", pass);
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60, 60]);
    }

    #[test]
    fn a_success_in_between_starts_the_count_again() {
        let (breaker, now) = (Breaker::default(), Instant::now());
        for _ in 0..3 {
            for _ in 0..FAULTS - 1 {
                breaker.fault(now, "x", Pass::Free);
            }
            breaker.succeed();
        }
        assert!(!breaker.is_open(now));
    }

    #[test]
    fn requests_that_were_under_way_when_it_opened_do_not_lengthen_the_pause() {
        let (breaker, now) = (Breaker::default(), Instant::now());
        for _ in 0..FAULTS * 3 {
            breaker.fault(now, "x", Pass::Free);
        }
        assert_eq!(breaker.admit(now).unwrap_err().wait, OPEN.0);
    }
}
