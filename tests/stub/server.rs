//! The HTTP server of a stub: connections with and without TLS, and the processing of one request.

use super::dialect::{Dialect, credential};
use super::fault::Fault;
use super::payload::Payload;
use super::request::{self, Parsed};
use super::state::{InFlightRequest, Shared, Work};
use super::{Options, Seen, answer};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// TLS under a certificate for localhost that is made at each start: only clients that are given it trust it.
pub struct Tls {
    acceptor: TlsAcceptor,
    /// The same under another certificate, which no client is given.
    untrusted: TlsAcceptor,
    /// The first certificate as PEM.
    pub certificate: String,
}

impl Tls {
    pub fn new(http2: bool) -> Tls {
        let (acceptor, certificate) = acceptor(http2);
        Tls { acceptor, untrusted: self::acceptor(http2).0, certificate }
    }
}

fn acceptor(http2: bool) -> (TlsAcceptor, String) {
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_string()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der()));
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    if http2 {
        config.alpn_protocols.push(b"h2".to_vec());
    }
    config.alpn_protocols.push(b"http/1.1".to_vec());
    (TlsAcceptor::from(Arc::new(config)), certified.cert.pem())
}

/// Accepts connections until it is dropped.
pub async fn serve(listener: TcpListener, tls: Option<Tls>, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await; // out of file descriptors
            continue;
        };
        let _ = stream.set_nodelay(true);
        let acceptor = {
            let mut state = shared.state();
            state.connections += 1;
            tls.as_ref().map(|tls| {
                if !state.schedule.is_untrusted() {
                    return tls.acceptor.clone();
                }
                state.untrusted_connections += 1;
                tls.untrusted.clone()
            })
        };
        let shared = shared.clone();
        tokio::spawn(async move {
            match acceptor {
                None => connection(stream, shared).await,
                Some(acceptor) => {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        connection(stream, shared).await;
                    }
                }
            }
        });
    }
}

async fn connection<S>(stream: S, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http2().max_concurrent_streams(1024u32);
    let service = service_fn(move |request: Request<Incoming>| handle(request, shared.clone()));
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

/// What is known about a request before it is answered.
struct Examined<'a> {
    version: Version,
    provider: &'a str,
    dialect: Option<Dialect>,
    parsed: Parsed<'a>,
    problems: Vec<String>,
    credential_problem: Option<String>,
}

/// The error breaks the connection.
async fn handle(request: Request<Incoming>, shared: Arc<Shared>) -> io::Result<Response<Payload>> {
    let _in_flight = InFlightRequest::begin(&shared);
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let headers = strings(&head.headers);
    let json = serde_json::from_slice::<Value>(&body);
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    let other_key = shared.state().other_key.clone();
    let examined = examine(&head, target, &headers, &json, &shared.options, other_key.as_deref());
    let (status, fault) = record(&shared, target, &headers, &json, &examined);
    let _work = (status != 429).then(|| Work(shared.clone()));

    let key = credential(&headers);
    if examined.credential_problem.is_some() {
        return Ok(refuse(examined.dialect, status, &format!("invalid key {key}"), &[]));
    }
    let Some(dialect) = examined.dialect.filter(|_| examined.problems.is_empty()) else {
        let message = format!("{} (key {key})", examined.problems.join("; "));
        return Ok(refuse(examined.dialect, status, &message, &[]));
    };
    let _slot = match &shared.slots {
        Some(slots) => Some(slots.acquire().await.map_err(io::Error::other)?),
        None => None,
    };
    let latency = shared.state().latency;
    if !latency.is_zero() {
        tokio::time::sleep(latency).await;
    }
    let _ = shared.is_held.subscribe().wait_for(|is_held| !is_held).await;
    perform(&shared, dialect, &examined.parsed, fault, &headers).await
}

/// Finds everything that is wrong with a request. `target` is its path and query.
fn examine<'a>(
    head: &Parts,
    target: &'a str,
    headers: &HashMap<String, String>,
    json: &'a serde_json::Result<Value>,
    options: &Options,
    other_key: Option<&str>,
) -> Examined<'a> {
    let mut problems = Vec::new();
    if head.method != Method::POST {
        problems.push(format!("the method is {}, not POST", head.method));
    }
    let media = headers.get("content-type").map_or("", String::as_str);
    if !["application/json", "application/json; charset=utf-8"].contains(&media) {
        problems.push(format!("the content type is {media:?}, not application/json"));
    }
    if let Err(error) = json {
        problems.push(format!("the body is no JSON in UTF-8: {error}"));
    }
    let (provider, rest) = split(target);
    let (path, query) = match rest.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (rest, None),
    };
    let dialect = Dialect::find(provider);
    let mut parsed = Parsed::default();
    match dialect {
        None => problems.push(format!("there is no provider {provider:?}")),
        Some(dialect) => {
            let model = dialect.model_in_path(path, query).unwrap_or_else(|problem| {
                problems.push(problem);
                ""
            });
            problems.extend(dialect.header_problem(headers));
            if let Ok(body) = json {
                parsed = request::parse(dialect, model, body, options.max_batch, &mut problems);
            }
        }
    }
    let key = options.key.as_deref();
    let credential_problem = dialect.and_then(|dialect| {
        let problem = dialect.credential_problem(headers, key)?;
        let is_other = other_key.is_some() && dialect.credential_problem(headers, other_key).is_none();
        (!is_other).then_some(problem)
    });
    Examined { version: head.version, provider, dialect, parsed, problems, credential_problem }
}

/// Of "/openai/v1/embeddings?a=b": "openai" and "/v1/embeddings?a=b".
fn split(target: &str) -> (&str, &str) {
    let bare = target.strip_prefix('/').unwrap_or(target);
    bare.split_at(bare.find(['/', '?']).unwrap_or(bare.len()))
}

/// Records the request. Returns the status of its answer (0: none) and its fault, if it has one.
fn record(
    shared: &Shared,
    target: &str,
    headers: &HashMap<String, String>,
    json: &serde_json::Result<Value>,
    examined: &Examined<'_>,
) -> (u16, Option<Fault>) {
    let texts = &examined.parsed.texts;
    let limit = shared.options.max_body_text_chars.unwrap_or(usize::MAX);
    let mut state = shared.state();
    let mut fault = None;
    let status = if examined.credential_problem.is_some() {
        401
    } else if !examined.problems.is_empty() {
        400
    } else {
        let is_long = texts.iter().any(|text| text.len() > limit && text.chars().count() > limit);
        let is_busy = state.most_at_work.is_some_and(|most| state.at_work >= most)
            || state.most_tokens.is_some_and(|most| answer::tokens(texts) > most);
        fault = match (is_long, is_busy) {
            (true, _) => Some(Fault::Status(400)),
            (_, true) => Some(Fault::Status(429)),
            _ => state.schedule.next(texts),
        };
        fault.as_ref().map_or(200, Fault::status)
    };
    state.at_work += usize::from(status != 429);
    for problem in examined.problems.iter().chain(&examined.credential_problem) {
        state.complain(format!("{target}: {problem}"));
    }
    state.request_count += 1;
    if shared.options.record {
        state.see(texts);
        state.requests.push(Seen {
            provider: examined.provider.to_string(),
            version: examined.version,
            path: split(target).1.to_string(),
            headers: headers.clone(),
            kind: examined.parsed.kind,
            texts: texts.iter().map(|text| (*text).to_string()).collect(),
            body: json.as_ref().map_or(Value::Null, Value::clone),
            at: Instant::now(),
            status,
        });
    }
    (status, fault)
}

/// Answers a correct request, with the fault that it is to have.
async fn perform(
    shared: &Shared,
    dialect: Dialect,
    parsed: &Parsed<'_>,
    fault: Option<Fault>,
    headers: &HashMap<String, String>,
) -> io::Result<Response<Payload>> {
    let key = credential(headers);
    let message = |status: u16| match status {
        401 => format!("invalid key {key}"),
        _ => format!("the stub says {status} (key {key})"),
    };
    match &fault {
        Some(Fault::Never) => return std::future::pending().await,
        Some(Fault::CloseAtOnce) => return Err(io::Error::other("closed, as told")),
        Some(Fault::Slow(time)) => tokio::time::sleep(*time).await,
        Some(Fault::Status(status)) => return Ok(refuse(Some(dialect), *status, &message(*status), &[])),
        Some(Fault::RetryAfter { status, seconds }) => {
            let after = [("retry-after", seconds.to_string())];
            return Ok(refuse(Some(dialect), *status, &message(*status), &after));
        }
        Some(Fault::RetryAfterDate { status, seconds }) => {
            let date = SystemTime::now() + Duration::from_secs(seconds + 1); // its fraction is cut off
            let after = [("retry-after", httpdate::fmt_http_date(date))];
            return Ok(refuse(Some(dialect), *status, &message(*status), &after));
        }
        Some(Fault::Redirect(to)) => {
            return Ok(refuse(Some(dialect), 307, &message(307), &[("location", to.clone())]));
        }
        Some(Fault::Says(body)) => {
            return Ok(respond(200, "application/json", &[], Payload::whole(body.clone())));
        }
        Some(Fault::NotJson) => {
            let page = "<!DOCTYPE html><html><body>Please log in.</body></html>";
            return Ok(respond(200, "text/html", &[], Payload::whole(page)));
        }
        _ => {}
    }
    let dimension = parsed.dimension.unwrap_or(shared.options.dimension);
    let made = |text: &&str| match dialect.is_rerank() {
        true => vec![answer::score(parsed.query, text)],
        false => answer::vector(text, dimension),
    };
    let mut vectors: Vec<Vec<f32>> = parsed.texts.iter().map(made).collect();
    if let Some(fault) = &fault {
        fault.spoil(&mut vectors);
    }
    let is_reversed = fault == Some(Fault::Shuffled);
    let bytes = Bytes::from(match dialect.is_chat() {
        true => {
            let told = shared.state().words.clone();
            let prompt = parsed.texts.first().copied().unwrap_or_default();
            let words = told.unwrap_or_else(|| answer::words(prompt));
            answer::write_words(dialect, parsed, &words, fault.as_ref())
        }
        false => answer::write(dialect, parsed, &vectors, is_reversed),
    });
    if shared.options.record && fault.as_ref().is_none_or(Fault::is_good) {
        shared.state().answer(&parsed.texts);
    }
    let takes_gzip = headers.get("accept-encoding").is_some_and(|value| value.contains("gzip"));
    let mut more = Vec::new();
    let payload = match fault {
        Some(Fault::CloseMidway) => Payload::broken(&bytes),
        Some(Fault::Truncated) => Payload::whole(bytes.slice(..bytes.len() / 2)),
        Some(Fault::Huge) => Payload::huge(bytes),
        Some(Fault::Gzip) if takes_gzip => {
            more.push(("content-encoding", "gzip".to_string()));
            Payload::whole(answer::gzip(&bytes))
        }
        _ => Payload::whole(bytes),
    };
    Ok(respond(200, "application/json", &more, payload))
}

/// An error in the dialect's shape, with these headers besides.
fn refuse(
    dialect: Option<Dialect>,
    status: u16,
    message: &str,
    more: &[(&str, String)],
) -> Response<Payload> {
    let body = dialect.map_or_else(|| json!({"error": message}), |dialect| dialect.error(status, message));
    respond(status, "application/json", more, Payload::whole(body.to_string()))
}

fn respond(status: u16, media: &str, more: &[(&str, String)], payload: Payload) -> Response<Payload> {
    let mut response = Response::builder().status(status).header("content-type", media);
    for (name, value) in more {
        response = response.header(*name, value.as_str());
    }
    response.body(payload).unwrap()
}

/// Headers as strings, names in lower case; several of one name joined by ", ".
fn strings(headers: &HeaderMap) -> HashMap<String, String> {
    let mut strings: HashMap<String, String> = HashMap::new();
    for (name, value) in headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        let joined = strings.entry(name.as_str().to_string()).or_default();
        if !joined.is_empty() {
            joined.push_str(", ");
        }
        joined.push_str(&value);
    }
    strings
}
