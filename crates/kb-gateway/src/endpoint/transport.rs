//! HTTP transport: a pooled client for all endpoints that may reach the same addresses. Connections are kept
//! alive, addresses are checked when they are resolved, redirects are not followed, and no reply is read
//! beyond its cap.

use super::egress::{Reach, permitted};
use super::secret::Secret;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest Retry-After in seconds.
const MAX_RETRY_AFTER: f64 = 3600.0;
const IDLE: Duration = Duration::from_secs(90);
/// The most bytes of an error reply that are read.
const ERROR_CAP: usize = 16 * 1024;

/// How the key is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Auth {
    /// `Authorization: Bearer KEY`.
    Bearer,
    /// The key as the value of this header.
    Header(&'static str),
}

/// A request without its credential.
#[derive(Debug, Clone, PartialEq)]
pub struct HttpRequest {
    pub method: String,
    pub url: String,
    /// Headers that the API wants. Those of the same name in the configuration replace them.
    pub headers: Vec<(&'static str, String)>,
    pub body: Body,
}

/// What a request sends.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    Json(Value),
    Bytes { content_type: String, bytes: Vec<u8> },
}

impl HttpRequest {
    pub fn post(url: String, body: Value) -> HttpRequest {
        HttpRequest { method: "POST".to_string(), url, headers: Vec::new(), body: Body::Json(body) }
    }
}

/// A reply with its status.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub retry_after: Option<Duration>,
    /// The target of a redirect.
    pub location: Option<String>,
    pub body: Vec<u8>,
}

/// Why there is no reply, without the key or the URL.
#[derive(Debug, Clone, PartialEq)]
pub enum Failure {
    /// A transient failure: unreachable, too slow or disconnected. Describes it without and with its cause.
    Passing(String, String),
    /// A permanent failure: a forbidden address or an untrusted certificate.
    Lasting(String),
    /// The reply has more bytes than this.
    TooLong(usize),
}

pub struct Transport {
    client: reqwest::Client,
}

/// The options of a request.
pub struct Sending<'a> {
    pub auth: Auth,
    pub secret: Option<&'a Secret>,
    pub headers: &'a BTreeMap<String, String>,
    pub timeout: Duration,
    /// The most bytes of a successful reply.
    pub cap: usize,
}

impl Transport {
    pub fn new(reach: Reach) -> Result<Transport, String> {
        Transport::build(reach, true)
    }

    /// A client that gives the bytes of a body as they are, even if they are compressed.
    pub fn unpacking_nothing(reach: Reach) -> Result<Transport, String> {
        Transport::build(reach, false)
    }

    fn build(reach: Reach, unpacks: bool) -> Result<Transport, String> {
        // Set once for the process; a second call has no effect.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .user_agent(concat!("kb/", env!("CARGO_PKG_VERSION")))
            .dns_resolver(Arc::new(CheckedResolver(reach)))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(IDLE)
            .tcp_keepalive(Duration::from_secs(30))
            .gzip(unpacks)
            .build()
            .map_err(|e| causes(&e).last().map_or_else(|| e.to_string(), ToString::to_string))?;
        Ok(Transport { client })
    }

    /// Sends a GET request without a credential. Returns when the head of the answer has arrived; the caller
    /// limits the time and the size of its body.
    pub async fn get(&self, url: &str, headers: HeaderMap) -> Result<reqwest::Response, Failure> {
        self.client.get(url).headers(headers).send().await.map_err(|e| classify(&e))
    }

    /// Sends a request and reads its reply within the timeout.
    pub async fn send(&self, request: &HttpRequest, sending: Sending<'_>) -> Result<Reply, Failure> {
        let lasting = |what: &str| Failure::Lasting(what.to_string());
        let method =
            reqwest::Method::from_bytes(request.method.as_bytes()).map_err(|_| lasting("no such method"))?;
        let HttpRequest { url, headers, body, .. } = request;
        let mut request = self.client.request(method, url).timeout(sending.timeout);
        request = match body {
            Body::Json(value) => request.json(value),
            Body::Bytes { content_type, bytes } => {
                request.header(CONTENT_TYPE, content_type).body(bytes.clone())
            }
        };
        let is_replaced = |name: &str| sending.headers.keys().any(|given| given.eq_ignore_ascii_case(name));
        for (name, value) in headers.iter().filter(|(name, _)| !is_replaced(name)) {
            request = request.header(*name, value);
        }
        for (name, value) in sending.headers {
            let name =
                HeaderName::from_bytes(name.as_bytes()).map_err(|_| lasting("a header's name is invalid"))?;
            let value = HeaderValue::from_str(value).map_err(|_| lasting("a header's value is invalid"))?;
            request = request.header(name, value);
        }
        if let Some(secret) = sending.secret {
            let (name, value) = match sending.auth {
                Auth::Bearer => ("authorization", format!("Bearer {}", secret.expose())),
                Auth::Header(name) => (name, secret.expose().to_string()),
            };
            let mut value =
                HeaderValue::from_str(&value).map_err(|_| lasting("the key contains invalid characters"))?;
            value.set_sensitive(true);
            request = request.header(name, value);
        }
        let mut response = request.send().await.map_err(|e| classify(&e))?;
        let status = response.status().as_u16();
        let header = |name| response.headers().get(name).and_then(|v: &HeaderValue| v.to_str().ok());
        let retry_after = header(RETRY_AFTER).and_then(|value| parse_retry_after(value, SystemTime::now()));
        let location = header(reqwest::header::LOCATION).map(str::to_string);
        let is_good = response.status().is_success();
        let cap = if is_good { sending.cap } else { ERROR_CAP };
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|e| classify(&e))? {
            if body.len() + part.len() > cap {
                if is_good {
                    return Err(Failure::TooLong(cap));
                }
                break;
            }
            body.extend_from_slice(&part);
        }
        Ok(Reply { status, retry_after, location, body })
    }
}

/// Resolves names by the system, and returns only addresses that may be connected to. The connection is made
/// to one of these.
struct CheckedResolver(Reach);

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.0;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let kept: Vec<SocketAddr> = permitted(found, reach)?;
            Ok(Box::new(kept.into_iter()) as Addrs)
        })
    }
}

pub fn classify(error: &reqwest::Error) -> Failure {
    let (what, text) = describe(error);
    if is_lasting(error) { Failure::Lasting(text) } else { Failure::Passing(what, text) }
}

fn causes<'a>(error: &'a reqwest::Error) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(std::error::Error::source(error), |cause| cause.source())
}

/// Whether a failure is permanent, because a refused address or certificate will be refused again.
fn is_lasting(error: &reqwest::Error) -> bool {
    error.is_builder() || causes(error).any(is_refusal)
}

fn is_refusal(cause: &(dyn std::error::Error + 'static)) -> bool {
    // An io::Error does not report its inner error as a source.
    let carried = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    cause.is::<super::egress::Forbidden>()
        || matches!(cause.downcast_ref(), Some(rustls::Error::InvalidCertificate(_)))
        || carried.is_some_and(|carried| is_refusal(carried))
}

/// Describes a failure for everybody, and with its innermost cause, which says most, but never with the URL.
/// If no connection was made nothing was sent, so the cause reveals no text and everybody may read it.
fn describe(error: &reqwest::Error) -> (String, String) {
    let what = if error.is_timeout() {
        "it did not answer in time"
    } else if error.is_connect() {
        "it cannot be reached"
    } else {
        "the connection failed"
    };
    let text = match causes(error).last() {
        Some(cause) if !error.is_timeout() => format!("{what}: {cause}"),
        _ => what.to_string(),
    };
    (if error.is_connect() { text.clone() } else { what.to_string() }, text)
}

/// Parses seconds or a date (RFC 9110, 10.2.3).
pub fn parse_retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    if let Ok(seconds) = value.trim().parse::<f64>() {
        return Duration::try_from_secs_f64(seconds.min(MAX_RETRY_AFTER)).ok();
    }
    let date = httpdate::parse_http_date(value.trim()).ok()?;
    let wait = date.duration_since(now).unwrap_or_default();
    Some(wait.min(Duration::from_secs_f64(MAX_RETRY_AFTER)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_connected_to_only_at_addresses_within_reach() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = std::net::TcpListener::bind("localhost:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://localhost:{}/", listener.local_addr().unwrap().port());
        let request = HttpRequest::post(url, serde_json::json!({}));
        let fails = |reach| {
            let (headers, timeout) = (BTreeMap::new(), Duration::from_millis(300));
            let sending = Sending { auth: Auth::Bearer, secret: None, headers: &headers, timeout, cap: 0 };
            runtime.block_on(Transport::new(reach).unwrap().send(&request, sending)).unwrap_err()
        };
        let refused = fails(Reach::Public);
        assert!(matches!(&refused, Failure::Lasting(why) if why.contains("kb.allowed_hosts")), "{refused:?}");
        assert!(listener.accept().is_err(), "it was connected to");
        // Other providers may connect to it, but nothing answers.
        assert!(matches!(fails(Reach::Anywhere), Failure::Passing(..)));
        assert!(listener.accept().is_ok());
    }

    #[test]
    fn a_refused_connection_names_its_cause_once_and_everybody_may_read_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        // Nothing listens after the listener is dropped.
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let url = format!("http://{address}/");
        let request = HttpRequest::post(url, serde_json::json!({}));
        let (headers, timeout) = (BTreeMap::new(), Duration::from_secs(60));
        let sending = Sending { auth: Auth::Bearer, secret: None, headers: &headers, timeout, cap: 0 };
        let transport = Transport::new(Reach::Anywhere).unwrap();
        let refused = runtime.block_on(transport.send(&request, sending)).unwrap_err();
        let text = "it cannot be reached: Connection refused (os error 111)".to_string();
        assert_eq!(refused, Failure::Passing(text.clone(), text));
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        assert_eq!(parse_retry_after("120", now), Some(Duration::from_secs(120)));
        assert_eq!(parse_retry_after("0.5", now), Some(Duration::from_millis(500)));
        assert_eq!(parse_retry_after("Sun, 06 Nov 1994 08:50:07 GMT", now), Some(Duration::from_secs(30)));
        assert_eq!(parse_retry_after("Sun, 06 Nov 1994 08:00:00 GMT", now), Some(Duration::ZERO));
        assert_eq!(parse_retry_after("1e19", now), Some(Duration::from_secs(3600)));
        assert_eq!(parse_retry_after("soon", now), None);
        assert_eq!(parse_retry_after("-3", now), None);
    }
}
