//! A circuit breaker for each endpoint. After repeated faults it opens, and nothing is sent for a while. Then
//! it is half open and sends a probe, whose success closes it (Nygard, Release It!, 2007). The probe is a
//! request that no endpoint has reason to refuse, because a request that crashes the endpoint would keep the
//! breaker open.
//!
//! If the first probe after an opening succeeds, the opening was a false alarm, and the next opening takes
//! twice as many faults. A text that crashes an endpoint therefore uses up its attempts, even if it is always
//! alone in its requests.

use kb_types::sync::lock;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The number of consecutive faults that open the breaker.
const FAULTS: u32 = 5;
/// How many times that number may double. It doubles when the first probe after an opening succeeds, because
/// then single requests were to blame and must use up all their attempts.
const DOUBLINGS: u32 = 4;
/// How long the breaker stays open at first, which doubles each time the probe fails, and at most.
const OPEN: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));
/// How long a false alarm counts.
const REMEMBERED: Duration = Duration::from_secs(600);
/// A probe without a result is abandoned after this time.
const PROBE: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub struct Breaker {
    state: Mutex<BreakerState>,
}

#[derive(Debug, Default)]
struct BreakerState {
    faults: u32,
    /// How many times it opened since the last success.
    openings: u32,
    open_until: Option<Instant>,
    /// Whether a probe is in flight.
    probing: bool,
    /// The number of openings whose first probe succeeded, and the time of the last one.
    false_alarms: u32,
    alarmed: Option<Instant>,
    /// The last fault, without text that only its client may see.
    problem: String,
}

/// Whether a request is a regular one or the half-open probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    Free,
    Probe,
}

/// Nothing may be sent for this long, because of this fault.
#[derive(Debug, Clone, PartialEq)]
pub struct Open {
    pub wait: Duration,
    pub problem: String,
}

impl Breaker {
    /// Whether a request may be sent now, and if not, how long not. The first one after the pause is the
    /// probe, and the others wait for its result.
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

    /// Like `admit`, but without becoming the probe.
    pub fn look(&self, now: Instant) -> Result<(), Open> {
        let state = lock(&self.state);
        match state.open_until {
            Some(until) if until > now => {
                Err(Open { wait: (until - now).min(OPEN.1), problem: state.problem.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Records that an answer arrived, whatever it said about the request.
    pub fn succeed(&self) {
        let mut state = lock(&self.state);
        let is_false_alarm = state.probing && state.openings == 1;
        let false_alarms = (state.false_alarms + u32::from(is_false_alarm)).min(DOUBLINGS);
        let alarmed = state.alarmed;
        *state = BreakerState { false_alarms, alarmed, ..BreakerState::default() };
    }

    /// Records that the probe was not sent.
    pub fn abandon(&self, now: Instant) {
        let mut state = lock(&self.state);
        if std::mem::take(&mut state.probing) {
            state.open_until = Some(now);
        }
    }

    /// Records that a request with this pass got no usable answer.
    pub fn fault(&self, now: Instant, problem: &str, pass: Pass) {
        let mut state = lock(&self.state);
        state.faults += 1;
        state.problem = problem.to_string();
        let is_probe = state.probing && pass == Pass::Probe;
        // Requests that were in flight when the breaker opened provide no new information.
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
    fn a_false_alarm_raises_the_threshold_and_a_true_one_resets_it() {
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
        // False alarms do not count for ever, either.
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
            // A request from before the opening says nothing about the probe.
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
    fn requests_in_flight_at_the_opening_do_not_lengthen_the_pause() {
        let (breaker, now) = (Breaker::default(), Instant::now());
        for _ in 0..FAULTS * 3 {
            breaker.fault(now, "x", Pass::Free);
        }
        assert_eq!(breaker.admit(now).unwrap_err().wait, OPEN.0);
    }
}
