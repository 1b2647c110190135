//! A stub of every embedding provider: a real HTTP server in this process that checks requests strictly,
//! answers with vectors that are known beforehand, and has the faults that a test sets.

#![allow(dead_code, unused_imports)] // no binary uses all of it
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod answer;
pub mod bucket;
mod dialect;
mod fault;
mod files;
mod payload;
mod request;
mod server;
mod state;

pub use answer::{score, vector};
pub use fault::Fault;
pub use files::{FileStub, scan};

use dialect::Dialect;
use fault::Chaos;
use serde_json::Value;
use state::Shared;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::runtime::Runtime;

/// For tests of what is counted by day (UTC): waits for the next day if this one is about to end.
pub fn on_one_day() {
    const DAY: u64 = 86_400;
    let second = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() % DAY;
    while second() > DAY - 90 {
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The place of a text in the request that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Document,
    Query,
}

#[derive(Debug, Clone)]
pub struct Options {
    /// The port at 127.0.0.1, or 0 for any free one.
    pub port: u16,
    /// The dimension of vectors, unless the request specifies it.
    pub dimension: usize,
    /// The latency of every answer.
    pub latency: Duration,
    /// The number of requests that are processed at the same time while others wait; 0 means any number.
    pub concurrency: usize,
    /// The credential that every request must carry, in the place of its dialect. None: no request may carry
    /// one.
    pub key: Option<String>,
    /// HTTPS under a certificate for localhost that no system trusts; see [`Stub::certificate`].
    pub tls: bool,
    /// With TLS: whether HTTP/2 is offered, too.
    pub http2: bool,
    /// The most texts of one request.
    pub max_batch: usize,
    /// The most characters of one text; a request with a longer one gets a 400, which does not count as a
    /// complaint.
    pub max_body_text_chars: Option<usize>,
    /// Whether requests and texts are recorded, not only counted.
    pub record: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            port: 0,
            dimension: 8,
            latency: Duration::ZERO,
            concurrency: 0,
            key: None,
            tls: false,
            http2: true,
            max_batch: 2048,
            max_body_text_chars: None,
            record: true,
        }
    }
}

/// A request in the form in which it was received.
#[derive(Debug, Clone)]
pub struct Seen {
    pub provider: String,
    /// The version of HTTP.
    pub version: hyper::Version,
    /// Path and query in the form that the provider itself would see.
    pub path: String,
    /// Names in lower case.
    pub headers: HashMap<String, String>,
    /// The kind that the dialect states, or None if it states none.
    pub kind: Option<Kind>,
    /// The texts, as far as they could be read.
    pub texts: Vec<String>,
    /// Null if it was not JSON.
    pub body: Value,
    /// The time at which the whole request had been received.
    pub at: Instant,
    /// The HTTP status of its answer (which may not have been sent yet), or 0 if it gets none.
    pub status: u16,
}

/// A running stub; dropping it closes its port and every connection.
pub struct Stub {
    shared: Arc<Shared>,
    port: u16,
    certificate: Option<String>,
    runtime: Option<Runtime>,
}

impl Stub {
    /// Listens when this returns. Panics if the port is taken.
    pub fn start(options: Options) -> Stub {
        let listener = std::net::TcpListener::bind(("127.0.0.1", options.port)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("stub provider")
            .enable_all()
            .build()
            .unwrap();
        let tls = options.tls.then(|| server::Tls::new(options.http2));
        let certificate = tls.as_ref().map(|tls| tls.certificate.clone());
        let shared = Arc::new(Shared::new(options));
        let served = shared.clone();
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            server::serve(listener, tls, served).await;
        });
        Stub { shared, port, certificate, runtime: Some(runtime) }
    }

    /// "http://127.0.0.1:PORT", with TLS "https://localhost:PORT".
    pub fn url(&self) -> String {
        match self.shared.options.tls {
            true => format!("https://localhost:{}", self.port),
            false => format!("http://127.0.0.1:{}", self.port),
        }
    }

    /// The base_url for an embedder of this provider. Panics if there is no such provider.
    pub fn base_url(&self, provider: &str) -> String {
        let dialect = Dialect::find(provider).unwrap();
        format!("{}/{provider}{}", self.url(), dialect.base())
    }

    /// The certificate as PEM, for a client that is to trust it. None without TLS.
    pub fn certificate(&self) -> Option<&str> {
        self.certificate.as_deref()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The next `times` requests get this fault, after those of earlier calls have had theirs. Only requests
    /// without complaint get faults.
    pub fn script(&self, fault: Fault, times: usize) {
        self.shared.state().push_script(fault, times);
    }

    /// Every request that the script and refused texts leave gets this fault, until this is set to None.
    pub fn always(&self, fault: Option<Fault>) {
        self.shared.state().schedule.always = fault;
    }

    /// A request that arrives while this many are in progress gets a 429.
    pub fn refuse_above(&self, most: usize) {
        self.shared.state().most_at_work = Some(most);
    }

    /// A request with more tokens than that gets a 429, whenever it comes.
    pub fn refuse_tokens_above(&self, most: usize) {
        self.shared.state().most_tokens = Some(most);
    }

    /// Any request with a text that contains `part` gets this fault, once the script is used up.
    pub fn refuse_text(&self, part: &str, fault: Fault) {
        self.shared.state().schedule.refused.push((part.to_string(), fault));
    }

    /// Forgets every `refuse_text`.
    pub fn accept_texts(&self) {
        self.shared.state().schedule.refused.clear();
    }

    /// Each request that has no other fault gets a random one with this probability; redirects lead to the
    /// URL `elsewhere`. With TLS, a new connection gets a certificate that no client trusts with the same
    /// probability. `seed` determines the choices.
    pub fn chaos(&self, rate: f64, seed: u64, elsewhere: &str) {
        self.shared.state().schedule.chaos = Some(Chaos::new(rate, seed, elsewhere));
    }

    /// Ends [`Stub::chaos`].
    pub fn end_chaos(&self) {
        self.shared.state().schedule.chaos = None;
    }

    /// Connections that chaos gave a certificate that no client trusts.
    pub fn untrusted_connections(&self) -> usize {
        self.shared.state().untrusted_connections
    }

    /// All requests in order; none with `record: false`.
    pub fn requests(&self) -> Vec<Seen> {
        self.shared.state().requests.clone()
    }

    pub fn request_count(&self) -> usize {
        self.shared.state().request_count
    }

    /// Connections that were made.
    pub fn connections(&self) -> usize {
        self.shared.state().connections
    }

    /// The number of times that exactly this text was sent, whatever the answer was.
    pub fn seen(&self, text: &str) -> usize {
        self.shared.state().texts.get(text).map_or(0, |(seen, _)| *seen)
    }

    /// The number of times that a good vector for exactly this text was sent back.
    pub fn answered(&self, text: &str) -> usize {
        self.shared.state().texts.get(text).map_or(0, |(_, answered)| *answered)
    }

    /// For each text, the number of times that it was sent, and that a good vector was sent back.
    pub fn counts(&self) -> HashMap<String, (usize, usize)> {
        self.shared.state().texts.clone()
    }

    /// The most requests in progress at the same time, including waiting ones. A request whose client has
    /// left is in progress until the server notices.
    pub fn in_flight_max(&self) -> usize {
        self.shared.state().in_flight_max
    }

    /// What was wrong with requests.
    pub fn complaints(&self) -> Vec<String> {
        self.shared.state().complaints.clone()
    }

    /// From now on this key is accepted in addition to that of the options.
    pub fn take_key(&self, key: &str) {
        self.shared.state().other_key = Some(key.to_string());
    }

    /// Clears the records; faults stay.
    pub fn forget(&self) {
        self.shared.state().forget();
    }

    /// Holds all answers back, or releases them.
    pub fn hold(&self, is_held: bool) {
        self.shared.is_held.send_replace(is_held);
    }

    /// Chat models answer with these words, or with fitting ones for None.
    pub fn say(&self, words: Option<&str>) {
        self.shared.state().words = words.map(str::to_string);
    }

    pub fn set_latency(&self, latency: Duration) {
        self.shared.state().latency = latency;
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        // Inside another runtime nothing may block.
        match tokio::runtime::Handle::try_current() {
            Ok(_) => runtime.shutdown_background(),
            Err(_) => runtime.shutdown_timeout(Duration::from_secs(10)),
        }
    }
}
