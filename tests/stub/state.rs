//! The records and instructions of a stub, shared by the server's tasks and the tests' thread.

use super::fault::{Fault, Schedule};
use super::{Options, Seen};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};

/// The most complaints that are kept: a benchmark that is all wrong must not fill the memory.
const COMPLAINTS: usize = 10_000;

pub struct Shared {
    pub options: Options,
    /// One permit for each request that may be processed at the same time; None means any number.
    pub slots: Option<Semaphore>,
    /// Whether answers are held back.
    pub is_held: watch::Sender<bool>,
    state: Mutex<State>,
}

#[derive(Default)]
pub struct State {
    pub schedule: Schedule,
    pub latency: Duration,
    /// The answer of chat models, or a fitting one for None.
    pub words: Option<String>,
    /// A credential that is accepted in addition to that of the options.
    pub other_key: Option<String>,
    pub requests: Vec<Seen>,
    pub request_count: usize,
    pub connections: usize,
    /// The number of these with a certificate that no client trusts.
    pub untrusted_connections: usize,
    /// How often each text was sent, and answered with a good vector.
    pub texts: HashMap<String, (usize, usize)>,
    pub complaints: Vec<String>,
    /// The most tokens of a request; for more the answer is 429.
    pub most_tokens: Option<usize>,
    /// The most requests in progress, and their present number; for one more the answer is 429.
    pub most_at_work: Option<usize>,
    pub at_work: usize,
    pub in_flight: usize,
    pub in_flight_max: usize,
}

impl Shared {
    pub fn new(options: Options) -> Shared {
        Shared {
            slots: (options.concurrency > 0).then(|| Semaphore::new(options.concurrency)),
            is_held: watch::Sender::new(false),
            state: Mutex::new(State { latency: options.latency, ..State::default() }),
            options,
        }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl State {
    /// Records that these texts were sent.
    pub fn see(&mut self, texts: &[&str]) {
        for text in texts {
            self.texts.entry((*text).to_string()).or_default().0 += 1;
        }
    }

    /// Records that these texts are answered with good vectors.
    pub fn answer(&mut self, texts: &[&str]) {
        for text in texts {
            self.texts.entry((*text).to_string()).or_default().1 += 1;
        }
    }

    pub fn complain(&mut self, complaint: String) {
        if self.complaints.len() < COMPLAINTS {
            self.complaints.push(complaint);
        }
    }

    pub fn push_script(&mut self, fault: Fault, times: usize) {
        if times > 0 {
            self.schedule.script.push_back((fault, times));
        }
    }

    pub fn forget(&mut self) {
        self.requests.clear();
        self.request_count = 0;
        self.texts.clear();
        self.complaints.clear();
        self.in_flight_max = self.in_flight;
    }
}

/// A request in progress, which [`State::at_work`] counts, until this is dropped.
pub struct Work(pub Arc<Shared>);

impl Drop for Work {
    fn drop(&mut self) {
        self.0.state().at_work -= 1;
    }
}

/// A request in progress, until this is dropped.
pub struct InFlightRequest(Arc<Shared>);

impl InFlightRequest {
    pub fn begin(shared: &Arc<Shared>) -> InFlightRequest {
        let mut state = shared.state();
        state.in_flight += 1;
        state.in_flight_max = state.in_flight_max.max(state.in_flight);
        InFlightRequest(shared.clone())
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.0.state().in_flight -= 1;
    }
}
