//! Pages of browsers: those of the server itself and of the origins on the command line may call it, and no
//! other page may, not even without reading the answer.

use super::problem::Problem;
use hyper::StatusCode;
use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, HOST, HeaderMap,
    HeaderValue, ORIGIN, VARY,
};

pub const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
const EXPOSED: &str = "etag, link, location, retry-after, x-request-id, mcp-session-id";
/// Seconds for which a browser remembers what it was allowed.
const MAX_AGE: &str = "600";

pub struct Cors {
    pub origins: Vec<String>,
}

impl Cors {
    /// Whether the request is of no page, or of one that may call the server.
    pub fn admit(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let Some(origin) = headers.get(ORIGIN) else {
            return Ok(());
        };
        let origin = origin.to_str().unwrap_or_default();
        if self.allows(origin) || is_own(origin, headers) {
            return Ok(());
        }
        Err(Problem::new(StatusCode::FORBIDDEN, "pages of this origin may not call the server")
            .hint("Start kb serve with --cors and the origin."))
    }

    fn allows(&self, origin: &str) -> bool {
        self.origins.iter().any(|allowed| allowed == origin)
    }

    /// The headers of an answer to a page of another origin.
    pub fn answer(&self, request: &HeaderMap, is_preflight: bool, answer: &mut HeaderMap) {
        if self.origins.is_empty() {
            return;
        }
        answer.append(VARY, HeaderValue::from_static("origin"));
        let Some(origin) = request.get(ORIGIN) else {
            return;
        };
        if !origin.to_str().is_ok_and(|origin| self.allows(origin)) {
            return;
        }
        answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        answer.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
        if is_preflight {
            answer.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
            answer.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
            if let Some(names) = request.get(ACCESS_CONTROL_REQUEST_HEADERS) {
                answer.insert(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
            }
        }
    }
}

/// Whether a page is of the host that the request names. A proxy may have ended TLS, so the scheme is open.
fn is_own(origin: &str, headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let own = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
    matches!((own, host), (Some(own), Some(host)) if own.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn pages_of_other_origins_may_not_call_unless_they_are_listed() {
        let none = Cors { origins: Vec::new() };
        let listed = Cors { origins: vec!["https://app.example.com".into()] };
        let app = headers(&[("origin", "https://app.example.com"), ("host", "kb.example.com")]);
        assert!(none.admit(&app).is_err() && listed.admit(&app).is_ok());
        for origin in ["https://app.example.com.evil.com", "null", "http://app.example.com", ""] {
            let mut other = app.clone();
            other.insert(ORIGIN, HeaderValue::from_static(origin));
            assert!(listed.admit(&other).is_err(), "{origin}");
            let mut answer = HeaderMap::new();
            listed.answer(&other, true, &mut answer);
            assert!(answer.get(ACCESS_CONTROL_ALLOW_ORIGIN).is_none(), "{origin}");
        }
        assert!(none.admit(&headers(&[("host", "kb.example.com")])).is_ok());
        let own = headers(&[("origin", "https://kb.example.com:8443"), ("host", "kb.example.com:8443")]);
        assert!(none.admit(&own).is_ok());
    }

    #[test]
    fn a_preflight_says_what_the_page_may_send() {
        let listed = Cors { origins: vec!["https://app.example.com".into()] };
        let asked = headers(&[
            ("origin", "https://app.example.com"),
            ("access-control-request-headers", "authorization"),
        ]);
        let mut answer = HeaderMap::new();
        listed.answer(&asked, true, &mut answer);
        assert_eq!(answer[ACCESS_CONTROL_ALLOW_ORIGIN], "https://app.example.com");
        assert_eq!(answer[ACCESS_CONTROL_ALLOW_HEADERS], "authorization");
        assert!(answer.get("access-control-allow-credentials").is_none());
        let mut off = HeaderMap::new();
        Cors { origins: Vec::new() }.answer(&asked, true, &mut off);
        assert!(off.is_empty());
    }
}
