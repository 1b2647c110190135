//! A stub of every embedding provider: a real HTTP server in this process that is strict about what it
//! is sent, answers with vectors that are known beforehand, and has the faults that a test wants.

#![allow(dead_code, unused_imports)] // no binary uses all of it
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod answer;
mod dialect;
mod fault;
mod payload;
mod request;
mod server;
mod state;

pub use answer::{score, vector};
pub use fault::Fault;

use dialect::Dialect;
use fault::Chaos;
use serde_json::Value;
use state::Shared;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::runtime::Runtime;

/// For tests of what is counted by day (UTC): waits for the next one where this one is about to end.
pub fn on_one_day() {
    const DAY: u64 = 86_400;
    let second = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() % DAY;
    while second() > DAY - 90 {
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// What a text is to the request that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Document,
    Query,
}

#[derive(Debug, Clone)]
pub struct Options {
    /// At 127.0.0.1; 0: any that is free.
    pub port: u16,
    /// Numbers of a vector, unless the request says how many it wants.
    pub dimension: usize,
    /// Of every answer.
    pub latency: Duration,
    /// Requests that are worked on at one time, the others wait; 0: any number.
    pub concurrency: usize,
    /// The credential that every request must carry, in its dialect's place. None: none may carry one.
    pub key: Option<String>,
    /// HTTPS under a certificate for localhost that no system trusts; see [`Stub::certificate`].
    pub tls: bool,
    /// With TLS: whether HTTP/2 is offered, too.
    pub http2: bool,
    /// Texts of one request at most.
    pub max_batch: usize,
    /// Characters of one text at most; a request with a longer one gets a 400, without a complaint.
    pub max_body_text_chars: Option<usize>,
    /// Whether requests and texts are remembered, not only counted.
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

/// A request, as it came.
#[derive(Debug, Clone)]
pub struct Seen {
    pub provider: String,
    /// Of HTTP.
    pub version: hyper::Version,
    /// Path and query as the provider itself would see them.
    pub path: String,
    /// Names in lower case.
    pub headers: HashMap<String, String>,
    /// As the dialect says it; None where it does not.
    pub kind: Option<Kind>,
    /// As far as they could be read.
    pub texts: Vec<String>,
    /// Null where it was no JSON.
    pub body: Value,
    /// When it was there as a whole.
    pub at: Instant,
    /// HTTP status it is answered with (it may not have been yet); 0: it gets no answer.
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
    /// Listens when this returns. Panics when the port is taken.
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

    /// What the base_url of an embedder of this provider must be. Panics when there is no such provider.
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

    /// The next `times` requests get this fault, after those of earlier calls have had theirs. Only
    /// requests without complaint get faults.
    pub fn script(&self, fault: Fault, times: usize) {
        self.shared.state().push_script(fault, times);
    }

    /// Every request that the script and refused texts leave gets this fault, until this is set to None.
    pub fn always(&self, fault: Option<Fault>) {
        self.shared.state().schedule.always = fault;
    }

    /// A request that comes while so many are worked on gets a 429.
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

    /// Each request that has no other fault gets one with this probability, any; redirects lead to the URL
    /// `elsewhere`. With TLS, a new connection gets a certificate that no client trusts as often. `seed`
    /// decides which.
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

    /// How often exactly this text was sent, whatever was answered.
    pub fn seen(&self, text: &str) -> usize {
        self.shared.state().texts.get(text).map_or(0, |(seen, _)| *seen)
    }

    /// How often a good vector for exactly this text was sent back.
    pub fn answered(&self, text: &str) -> usize {
        self.shared.state().texts.get(text).map_or(0, |(_, answered)| *answered)
    }

    /// Of each text, how often it was sent, and a good vector sent back.
    pub fn counts(&self) -> HashMap<String, (usize, usize)> {
        self.shared.state().texts.clone()
    }

    /// Most requests under way at one time, waiting ones included. A request that the client gave up is
    /// under way until the server notices.
    pub fn in_flight_max(&self) -> usize {
        self.shared.state().in_flight_max
    }

    /// What was wrong with requests.
    pub fn complaints(&self) -> Vec<String> {
        self.shared.state().complaints.clone()
    }

    /// From now on this key is accepted beside that of the options.
    pub fn take_key(&self, key: &str) {
        self.shared.state().other_key = Some(key.to_string());
    }

    /// Clears the records; faults stay.
    pub fn forget(&self) {
        self.shared.state().forget();
    }

    /// Holds all answers back, or lets them go.
    pub fn hold(&self, is_held: bool) {
        self.shared.is_held.send_replace(is_held);
    }

    /// Chat models answer with these words; None: with what fits.
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
