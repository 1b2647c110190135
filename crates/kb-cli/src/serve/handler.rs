//! One request: who calls, what the database answers, and the line of the log.

use super::auth::{Act, Auth, Identity};
use super::cors::{Cors, METHODS};
use super::database::{Accepted, Answer, Call, Database};
use super::limits::{Bodies, Rates};
use super::log::{Entry, Log};
use super::problem::Problem;
use super::{Body, console};
use crate::mcp;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{
    ACCESS_CONTROL_REQUEST_METHOD, ALLOW, AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH,
    CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHORIZATION, TRANSFER_ENCODING,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Map, Value};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACEPARENT: &str = "traceparent";

/// What all requests share.
pub struct Server {
    pub auth: Auth,
    pub database: Database,
    pub bodies: Bodies,
    pub rates: Rates,
    pub cors: Cors,
    pub log: Log,
    /// After SIGTERM, `/ready` says so.
    pub is_stopping: AtomicBool,
}

/// Who calls, for what a request does besides kb.http.
pub struct Caller {
    pub identity: Identity,
    pub traceparent: String,
}

impl Server {
    pub async fn answer(
        &self,
        peer: SocketAddr,
        request: Request<Incoming>,
        mcp: &mcp::Service,
    ) -> Response<Body> {
        let id = request_id(request.headers());
        let mut entry = Entry::new(self.log, id, request.method().as_str(), request.uri().path(), peer);
        let is_preflight = request.method() == Method::OPTIONS
            && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        let asked = request.headers().clone();
        let answered = self.route(peer, request, mcp, &mut entry).await;
        let mut response = answered.unwrap_or_else(|problem| {
            entry.sqlstate.clone_from(&problem.sqlstate);
            problem.response()
        });
        self.cors.answer(&asked, is_preflight, response.headers_mut());
        let headers = response.headers_mut();
        if let Ok(id) = HeaderValue::from_str(&entry.id) {
            headers.insert(REQUEST_ID, id);
        }
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if !headers.contains_key(CACHE_CONTROL) {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
        entry.status = response.status().as_u16();
        entry.sent = usize::try_from(hyper::body::Body::size_hint(response.body()).lower()).unwrap_or(0);
        response
    }

    async fn route(
        &self,
        peer: SocketAddr,
        request: Request<Incoming>,
        mcp: &mcp::Service,
        entry: &mut Entry,
    ) -> Result<Response<Body>, Problem> {
        self.cors.admit(request.headers())?;
        let method = request.method();
        let only_reads = method == Method::GET || method == Method::HEAD;
        if method == Method::OPTIONS {
            let mut response = empty(StatusCode::NO_CONTENT);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static(METHODS));
            return Ok(response);
        }
        match request.uri().path() {
            "/live" if only_reads => return Ok(text("live\n")),
            "/ready" if only_reads => return self.ready().await,
            "/mcp" => return self.mcp(peer, request, mcp, entry).await,
            path if only_reads => {
                if let Some(response) = console::answer(path, request.headers()) {
                    return Ok(response);
                }
            }
            _ => {}
        }
        self.call(peer, request, entry).await
    }

    async fn ready(&self) -> Result<Response<Body>, Problem> {
        if self.is_stopping.load(Ordering::Relaxed) {
            return Err(Problem::unavailable("the server is stopping"));
        }
        self.database.is_ready().await?;
        Ok(text("ready\n"))
    }

    /// A request that kb.http answers.
    async fn call(
        &self,
        peer: SocketAddr,
        request: Request<Incoming>,
        entry: &mut Entry,
    ) -> Result<Response<Body>, Problem> {
        let (parts, body) = request.into_parts();
        let identity = self.identify(&parts.headers, peer, entry).await?;
        let held = self.bodies.read(&parts.headers, body).await?;
        entry.received = held.bytes.len();
        // A client that asks for the header alone asks for the same.
        let method = if parts.method == Method::HEAD { "GET" } else { parts.method.as_str() };
        let call = Call {
            method,
            path: parts.uri.path(),
            query: parts.uri.query().unwrap_or_default(),
            headers: headers_json(&parts.headers, &entry.id),
            body: &held.bytes,
        };
        let answered = self.database.http(&identity, &entry.traceparent, &call, &self.bodies).await;
        if let (Err(problem), Act::Key { .. }) = (&answered, &identity.act)
            && problem.status == StatusCode::UNAUTHORIZED
        {
            self.rates.forget(&identity.bearer);
        }
        let (answer, accepted) = answered.map_err(|problem| self.challenged(problem))?;
        if let Some(accepted) = accepted {
            self.accept(&identity, &accepted, entry);
        }
        response(answer)
    }

    /// A request of the Model Context Protocol.
    async fn mcp(
        &self,
        peer: SocketAddr,
        request: Request<Incoming>,
        mcp: &mcp::Service,
        entry: &mut Entry,
    ) -> Result<Response<Body>, Problem> {
        let (mut parts, body) = request.into_parts();
        let identity = self.identify(&parts.headers, peer, entry).await?;
        let held = self.bodies.read(&parts.headers, body).await?;
        entry.received = held.bytes.len();
        parts.headers.remove(AUTHORIZATION);
        parts.extensions.insert(Arc::new(Caller { identity, traceparent: entry.traceparent.clone() }));
        Ok(mcp.handle(Request::from_parts(parts, Full::new(held.bytes.clone()))).await)
    }

    /// Finds out who calls, and whether that caller may call now. An API key that is not known yet is checked
    /// before the body is read.
    pub async fn identify(
        &self,
        headers: &HeaderMap,
        peer: SocketAddr,
        entry: &mut Entry,
    ) -> Result<Identity, Problem> {
        entry.traceparent = traceparent(headers).unwrap_or_default().to_string();
        let identity = self.auth.identify(headers, peer.ip()).await?;
        entry.name.clone_from(&identity.name);
        if let Act::Key { key } = &identity.act {
            match self.rates.name(&identity.bearer) {
                Some(name) => entry.name = name,
                None => {
                    let accepted = self.database.check_key(key).await;
                    let accepted = accepted.map_err(|problem| self.challenged(problem))?;
                    self.accept(&identity, &accepted, entry);
                }
            }
        }
        self.rates.count(&identity.bearer).map_err(|seconds| {
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "too many requests in a minute").retry_after(seconds)
        })?;
        Ok(identity)
    }

    /// Remembers what the database says of an API key.
    fn accept(&self, identity: &Identity, accepted: &Accepted, entry: &mut Entry) {
        entry.name = format!("key {}", accepted.key_id);
        self.rates.set(&identity.bearer, accepted.requests_per_minute, &entry.name);
    }

    fn challenged(&self, problem: Problem) -> Problem {
        if problem.status == StatusCode::UNAUTHORIZED {
            return problem.challenge(self.auth.challenge());
        }
        problem
    }
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::new()).boxed());
    *response.status_mut() = status;
    response
}

fn text(text: &'static str) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// The client's id of the request, if it is a plain one, or a new one.
fn request_id(headers: &HeaderMap) -> String {
    let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
    let is_plain = |id: &&str| {
        (1..=64).contains(&id.len()) && id.bytes().all(|c| c.is_ascii_alphanumeric() || b"._-".contains(&c))
    };
    given.filter(is_plain).map_or_else(|| uuid::Uuid::new_v4().to_string(), str::to_string)
}

/// The header of W3C Trace Context, if it has its form.
fn traceparent(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(TRACEPARENT)?.to_str().ok()?;
    let is_hex = |part: &str| part.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c));
    let parts: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    (lengths == [2, 32, 16, 2] && parts.iter().all(|part| is_hex(part)) && parts[0] != "ff").then_some(text)
}

/// The headers as an object of texts. What has credentials, or concerns the connection alone, stays here.
fn headers_json(headers: &HeaderMap, request_id: &str) -> String {
    let mut object = Map::new();
    for name in headers.keys() {
        if [AUTHORIZATION, PROXY_AUTHORIZATION, CONNECTION, TRANSFER_ENCODING, CONTENT_LENGTH].contains(name)
        {
            continue;
        }
        let values = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
        let joined = values.collect::<Vec<_>>().join(", ").replace('\0', "");
        object.insert(name.as_str().into(), joined.into());
    }
    object.insert(REQUEST_ID.as_str().into(), request_id.into());
    Value::from(object).to_string()
}

fn response(answer: Answer) -> Result<Response<Body>, Problem> {
    let unclear = |_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the database's answer is unclear");
    let headers: Map<String, Value> = if answer.headers.is_empty() {
        Map::new()
    } else {
        serde_json::from_str(&answer.headers).map_err(unclear)?
    };
    let mut response = Response::new(Full::new(answer.body).boxed());
    *response.status_mut() = answer.status;
    for (name, value) in &headers {
        let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else {
            continue;
        };
        // The length is that of the body, and connections are not the database's business.
        if [CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION].contains(&name) {
            continue;
        }
        let texts: Vec<String> = match value {
            Value::Null => continue,
            Value::String(text) => vec![text.clone()],
            Value::Array(texts) => texts.iter().filter_map(Value::as_str).map(str::to_string).collect(),
            other => vec![other.to_string()],
        };
        for text in texts {
            if let Ok(value) = HeaderValue::from_str(&text) {
                response.headers_mut().append(name.clone(), value);
            }
        }
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_do_not_reach_the_database_as_headers() {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer kb_secret"));
        headers.append("x-a", HeaderValue::from_static("1"));
        headers.append("x-a", HeaderValue::from_static("2"));
        let json: Value = serde_json::from_str(&headers_json(&headers, "id")).unwrap();
        assert_eq!(json, serde_json::json!({"x-a": "1, 2", "x-request-id": "id"}));
    }

    #[test]
    fn an_id_of_a_request_is_the_clients_if_it_is_plain() {
        let of = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, HeaderValue::from_static(value));
            request_id(&headers)
        };
        assert_eq!(of("abc-1.2_3"), "abc-1.2_3");
        for odd in ["", "a b", "a\"b", "a=b"] {
            assert_eq!(of(odd).len(), 36, "{odd}");
        }
    }

    #[test]
    fn only_a_well_formed_traceparent_is_taken() {
        let of = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(TRACEPARENT, HeaderValue::from_static(value));
            traceparent(&headers).map(str::to_string)
        };
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(of(good).as_deref(), Some(good));
        for wrong in ["", "00-4bf9-00f0-01", "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn headers_of_an_answer_that_are_none_are_left_out() {
        let headers =
            r#"{"etag": "\"1\"", "link": ["<a>", "<b>"], "a b": "x", "x": "a\nb", "content-length": "9"}"#;
        let answer =
            Answer { status: StatusCode::OK, headers: headers.into(), body: Bytes::from_static(b"x") };
        let made = response(answer).ok().unwrap();
        assert_eq!(made.headers()["etag"], "\"1\"");
        assert_eq!((made.headers().get_all("link").iter().count(), made.headers().len()), (2, 3));
    }
}
