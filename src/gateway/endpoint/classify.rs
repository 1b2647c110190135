//! What a reply means, as a value: an answer, a refusal for now, a fault that may pass, a rejection.

use super::egress::origin;
use super::secret::Secret;
use super::transport::{Failure, Reply};
use serde_json::Value;
use std::time::Duration;

/// Characters of an endpoint's own message that are passed on.
const MESSAGE: usize = 300;

/// Tokens at most that an endpoint is believed to have counted for one request.
const COUNTED: u64 = u32::MAX as u64;

/// A good reply, read.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer<T> {
    pub value: T,
    /// Tokens that the endpoint counted, where it says so.
    pub tokens: Option<u64>,
}

/// Why a reply with a good status is of no use.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Unusable {
    /// A fault that may pass.
    #[error("{0}")]
    Unreadable(String),
    /// The endpoint read only a part of what it was sent, and was not to.
    #[error("{0}")]
    Truncated(String),
    /// It is not what the configuration says, and will not be the next time.
    #[error("{0}")]
    Unexpected(String),
}

impl From<String> for Unusable {
    fn from(problem: String) -> Unusable {
        Unusable::Unreadable(problem)
    }
}

/// A fault that may pass, in two wordings.
#[derive(Debug, PartialEq)]
pub struct Fault {
    /// For the client whose request it was.
    pub problem: String,
    /// For everybody else: without the endpoint's words, which may repeat a text.
    pub status: String,
}

#[derive(Debug, PartialEq)]
pub enum Outcome<T> {
    Answered(Answer<T>),
    /// The endpoint wants nothing to be sent for a while; no failure. The reason has none of the endpoint's words:
    /// everybody may read it.
    Throttled {
        retry_after: Option<Duration>,
        reason: String,
    },
    Fault(Fault),
    /// The endpoint does not take this request; `by_size`: for being too much or too long.
    Rejected {
        problem: String,
        by_size: bool,
    },
    /// The endpoint takes no request at all, for example because of the key.
    Refused(String),
}

/// What a reply means. `quote`: the endpoint's own words may be passed on. `read` reads a good one.
pub fn classify<T>(
    reply: Reply,
    secret: Option<&Secret>,
    quote: bool,
    read: impl FnOnce(&[u8]) -> Result<Answer<T>, Unusable>,
) -> Outcome<T> {
    let status = format!("it answered {}", reply.status);
    let said = || {
        let text = match message(&reply.body).filter(|_| quote) {
            Some(message) => format!("{status}: {message}"),
            None => status.clone(),
        };
        secret.map_or(text.clone(), |secret| secret.redact(&text))
    };
    match reply.status {
        200..300 => answered(read(&reply.body)),
        429 => Outcome::Throttled { retry_after: reply.retry_after, reason: status },
        503 if reply.retry_after.is_some() => {
            Outcome::Throttled { retry_after: reply.retry_after, reason: status }
        }
        408 | 425 | 500.. => Outcome::Fault(Fault { problem: said(), status }),
        300..400 => {
            let to = reply.location.as_deref().and_then(origin).unwrap_or_else(|| "another place".into());
            Outcome::Refused(format!("{status} with a redirect to {to}, which is not followed"))
        }
        400 | 422 => Outcome::Rejected { problem: said(), by_size: false },
        413 => Outcome::Rejected { problem: said(), by_size: true },
        _ => Outcome::Refused(said()),
    }
}

fn answered<T>(read: Result<Answer<T>, Unusable>) -> Outcome<T> {
    match read {
        Ok(Answer { value, tokens }) => {
            Outcome::Answered(Answer { value, tokens: tokens.map(|tokens| tokens.min(COUNTED)) })
        }
        Err(Unusable::Unreadable(problem)) => {
            Outcome::Fault(Fault { problem, status: "its answer could not be read".into() })
        }
        Err(Unusable::Truncated(problem)) => Outcome::Rejected { problem, by_size: true },
        Err(Unusable::Unexpected(problem)) => Outcome::Refused(problem),
    }
}

/// What it means that there is no reply.
pub fn unanswered<T>(failure: Failure) -> Outcome<T> {
    match failure {
        Failure::Passing(status, problem) => Outcome::Fault(Fault { problem, status: status.into() }),
        Failure::Lasting(problem) => Outcome::Refused(problem),
    }
}

/// What an endpoint says of an error, from the places where endpoints put it; printable and short.
fn message(body: &[u8]) -> Option<String> {
    let parsed: Option<Value> = serde_json::from_slice(body).ok();
    let found = parsed.as_ref().and_then(|json| {
        ["/error/message", "/error", "/message", "/detail/0/msg", "/detail", "/errors/0", "/0/error/message"]
            .iter()
            .find_map(|pointer| json.pointer(pointer)?.as_str().map(str::to_string))
    });
    // A page of HTML says nothing to a database user.
    let text = match (found, parsed) {
        (Some(text), _) => text,
        (None, Some(_)) => return None,
        (None, None) if body.trim_ascii_start().starts_with(b"<") => return None,
        (None, None) => String::from_utf8_lossy(body).into_owned(),
    };
    let mut line = String::new();
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if let Some((end, _)) = line.char_indices().nth(MESSAGE) {
        line.truncate(end);
        line.push('…');
    }
    (!line.is_empty()).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, retry_after: Option<u64>, body: &str) -> Outcome<()> {
        let retry_after = retry_after.map(Duration::from_secs);
        let reply = Reply { status, retry_after, location: None, body: body.into() };
        classify(reply, Some(&Secret::new("sk-0123456789")), true, |body| match body {
            b"good" => Ok(Answer { value: (), tokens: Some(u64::MAX) }),
            b"cut" => Err(Unusable::Truncated("cut".into())),
            b"other" => Err(Unusable::Unexpected("other".into())),
            _ => Err("bad".to_string().into()),
        })
    }

    #[test]
    fn each_status_means_one_thing() {
        let throttled = |status: u16, seconds: Option<u64>| Outcome::Throttled {
            retry_after: seconds.map(Duration::from_secs),
            reason: format!("it answered {status}"),
        };
        assert_eq!(of(200, None, "good"), Outcome::Answered(Answer { value: (), tokens: Some(COUNTED) }));
        assert_eq!(of(429, None, "slower"), throttled(429, None));
        assert_eq!(of(429, Some(3), "slower"), throttled(429, Some(3)));
        assert_eq!(of(503, Some(3), "slower"), throttled(503, Some(3)));
        for status in [408, 425, 500, 502, 503, 599] {
            assert!(matches!(of(status, None, ""), Outcome::Fault(_)), "{status}");
        }
        for (status, is_by_size) in [(400, false), (413, true), (422, false)] {
            let outcome = of(status, None, "");
            assert!(
                matches!(outcome, Outcome::Rejected { by_size, .. } if by_size == is_by_size),
                "{status}"
            );
        }
        for status in [301, 307, 401, 403, 404, 405] {
            assert!(matches!(of(status, None, ""), Outcome::Refused(_)), "{status}");
        }
        assert!(matches!(of(200, None, "cut"), Outcome::Rejected { by_size: true, .. }));
        assert!(matches!(of(200, None, "other"), Outcome::Refused(_)));
        let Outcome::Fault(fault) = of(200, None, "what it says") else { panic!("it can be read") };
        assert!(!fault.status.contains("says"), "{fault:?}");
    }

    #[test]
    fn an_endpoints_words_are_for_the_client_alone_and_never_with_the_key() {
        let Outcome::Fault(fault) = of(500, None, "broken by sk-0123456789") else { panic!("no fault") };
        assert_eq!(fault.problem, "it answered 500: broken by ***");
        assert_eq!(fault.status, "it answered 500");
    }

    #[test]
    fn an_endpoints_message_is_found_where_it_puts_it_and_made_one_short_line() {
        let of = |body: &str| message(body.as_bytes());
        assert_eq!(of(r#"{"error": {"message": "bad\nkey"}}"#).as_deref(), Some("bad key"));
        assert_eq!(of(r#"{"error": "model not found"}"#).as_deref(), Some("model not found"));
        assert_eq!(of(r#"{"message": "too long"}"#).as_deref(), Some("too long"));
        assert_eq!(of("<html><body>502</body></html>"), None);
        assert_eq!(of("{}"), None);
        assert_eq!(of("upstream gone").as_deref(), Some("upstream gone"));
        assert!(of(&"x".repeat(5000)).unwrap().chars().count() <= MESSAGE + 1);
    }
}
