//! A host of pages: when it may be asked next, whether it answers, and what its robots.txt allows.

use super::super::semaphore::{Place, Places};
use super::super::turns::{Urgency, Whose};
use kb_types::sync::lock;
use robotxt::Robots;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use url::Url;

/// How many pages of a host are asked for at the same time.
const AT_ONCE: usize = 2;
/// The longest Crawl-delay that is honoured.
const LONGEST_DELAY: Duration = Duration::from_secs(30);
/// The longest time that a page waits because its host has asked to wait (Retry-After).
pub const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// After so many pages in a row without an answer, a host is not asked for a while.
const SILENT: u32 = 5;
const SILENCE: Duration = Duration::from_secs(60);

pub struct Host {
    places: Arc<Places>,
    state: Mutex<State>,
    /// What its robots.txt said, and until when that holds. It is fetched by one page at a time.
    pub robots: tokio::sync::Mutex<Option<(Rules, Instant)>>,
}

struct State {
    /// When the next request may be sent.
    next: Instant,
    /// It has asked to be left alone until then.
    paused_until: Instant,
    crawl_delay: Duration,
    silent: u32,
    silent_until: Instant,
    used: Instant,
}

/// What robots.txt says.
#[derive(Clone)]
pub enum Rules {
    Read(Arc<Robots>),
    /// It cannot be read, so that nothing is allowed for now (RFC 9309, 2.3.1.4).
    Unreachable(String),
}

impl Rules {
    /// Whether a page may be read; an error if that is not known.
    pub fn allow(&self, url: &Url) -> Result<bool, String> {
        match self {
            Rules::Read(robots) => Ok(robots.is_url_allowed(url)),
            Rules::Unreachable(problem) => {
                Err(format!("the robots.txt of its host cannot be read ({problem})"))
            }
        }
    }
}

impl Host {
    pub fn new() -> Host {
        let now = Instant::now();
        let state = State {
            next: now,
            paused_until: now,
            crawl_delay: Duration::ZERO,
            silent: 0,
            silent_until: now,
            used: now,
        };
        Host { places: Places::new(AT_ONCE), state: Mutex::new(state), robots: tokio::sync::Mutex::default() }
    }

    /// Waits until a request may be sent. The place is kept until its answer has come. An error says why none
    /// may be sent for a while.
    pub async fn turn(&self, per_second: f64, honours_robots: bool, whose: &Whose) -> Result<Place, String> {
        let place = self.places.take(Urgency::Ingest, whose).await;
        let rate = if per_second.is_finite() { per_second.clamp(0.001, 1e6) } else { 1.0 };
        loop {
            let (at, is_now) = {
                let mut state = lock(&self.state);
                let now = Instant::now();
                state.used = now;
                if now < state.silent_until {
                    return Err("its host did not answer several times, and is not asked for a minute".into());
                }
                let pause = state.paused_until.saturating_duration_since(now);
                if pause > LONGEST_PAUSE {
                    let seconds = pause.as_secs();
                    return Err(format!("its host asks to wait (Retry-After), for {seconds} s from now"));
                }
                let at = state.next.max(state.paused_until);
                let is_now = at <= now;
                if is_now {
                    let delay = if honours_robots { state.crawl_delay } else { Duration::ZERO };
                    state.next = now + Duration::from_secs_f64(1.0 / rate).max(delay);
                }
                (at, is_now)
            };
            if is_now {
                return Ok(place);
            }
            // It may ask to wait meanwhile.
            sleep_until(at).await;
        }
    }

    /// It asks to be left alone for a while.
    pub fn pause(&self, time: Duration) {
        let mut state = lock(&self.state);
        state.paused_until = state.paused_until.max(Instant::now() + time);
    }

    pub fn set_crawl_delay(&self, delay: Option<Duration>) {
        lock(&self.state).crawl_delay = delay.unwrap_or_default().min(LONGEST_DELAY);
    }

    /// Records whether it answered.
    pub fn heard(&self, has_answered: bool) {
        let mut state = lock(&self.state);
        state.silent = if has_answered { 0 } else { state.silent + 1 };
        if state.silent >= SILENT {
            state.silent = 0;
            state.silent_until = Instant::now() + SILENCE;
        }
    }

    /// Whether nobody has asked it for this long.
    pub fn is_idle(&self, idle: Duration) -> bool {
        lock(&self.state).used.elapsed() > idle
    }
}
