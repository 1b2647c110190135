//! Classifies replies: an answer, throttling, a transient fault, a rejection or a refusal.
//!
//! - Answered (2xx): vectors are normalised. Anything else in the place of a vector fails only its
//!   text alone.
//! - Throttled (429, 529, 503 with Retry-After): nothing is sent under these limits until the pause is over;
//!   long or repeated pauses are told to all who wait. Nothing is halved, because endpoints that limit
//!   requests answer 429, too, and would get more of them.
//! - Fault (other 5xx, 408, 425, faults of connection and time, replies that cannot be read): counted by the
//!   breaker and sent again up to `retry.max_attempts`; then, if a probe is answered, the batch is halved.
//! - Rejected (400, 422, 413, a text that was cut, more than the day's budget): halved until a text is alone,
//!   which gets the error.
//! - Refused (any other status, a redirect, another dimension, a certificate, a forbidden address): the error
//!   of all texts, at once.
//!
//! An error in the body of a 2xx is classified by the status that it means (`error_body::status`).

use super::egress::origin;
use super::error_body;
use super::secret::Secret;
use super::transport::{Failure, Reply};
use std::time::Duration;

/// The most tokens that an endpoint can credibly report for one request.
const COUNTED: u64 = u32::MAX as u64;

/// A successful reply that has been read.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer<T> {
    pub value: T,
    /// The tokens that the endpoint counted, if it reports them.
    pub tokens: Option<u64>,
}

/// Why a reply with a successful status is not usable.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Unusable {
    /// A transient fault.
    #[error("{0}")]
    Unreadable(String),
    /// The endpoint truncated its input although it was not to.
    #[error("{0}")]
    Truncated(String),
    /// The reply does not match the configuration, and will not match it next time.
    #[error("{0}")]
    Unexpected(String),
    /// The endpoint says that it cannot process this request, perhaps in words of its own.
    #[error("{0}")]
    Rejected(String),
}

impl From<String> for Unusable {
    fn from(problem: String) -> Unusable {
        Unusable::Unreadable(problem)
    }
}

/// A fault, described in two ways.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// For the client whose request it was.
    pub problem: String,
    /// For everybody else: without the endpoint's own message, which may repeat a text.
    pub status: String,
}

#[derive(Debug, PartialEq)]
pub enum Outcome<T> {
    Answered(Answer<T>),
    /// The endpoint asks for a pause, which is not a failure.
    Throttled {
        retry_after: Option<Duration>,
        fault: Fault,
    },
    Fault(Fault),
    /// The endpoint rejects this request. `by_size` means that it is too large.
    Rejected {
        problem: String,
        by_size: bool,
    },
    /// The endpoint refuses all requests, for example because of the key.
    Refused(Fault),
}

/// Classifies a reply. With `quote`, the endpoint's own message may be passed on. `read` reads a successful
/// reply.
pub fn classify<T>(
    reply: Reply,
    secret: Option<&Secret>,
    quote: bool,
    read: impl FnOnce(&[u8]) -> Result<Answer<T>, Unusable>,
) -> Outcome<T> {
    let Reply { status, retry_after, location, body } = reply;
    let answered = format!("it answered {status}");
    if !(200..300).contains(&status) {
        let to = || location.as_deref().and_then(origin).unwrap_or_else(|| "another location".into());
        let problem = match status {
            300..400 => format!("{answered} with a redirect to {}, which is not followed", to()),
            _ => said(&answered, &body, secret, quote),
        };
        return of_status(status, Fault { problem, status: answered }, retry_after);
    }
    match read(&body) {
        Ok(Answer { value, tokens }) => {
            Outcome::Answered(Answer { value, tokens: tokens.map(|tokens| tokens.min(COUNTED)) })
        }
        Err(unusable) => match error_body::status(&body) {
            // Some gateways between kb and a provider answer every request with status 200 and put errors
            // into the body.
            Some(meant) if matches!(unusable, Unusable::Unreadable(_)) => {
                let answered = format!("{answered} with an error");
                let fault = Fault { problem: said(&answered, &body, secret, quote), status: answered };
                of_status(meant, fault, retry_after)
            }
            _ => of_unusable(unusable, secret),
        },
    }
}

/// Classifies a status.
fn of_status<T>(status: u16, fault: Fault, retry_after: Option<Duration>) -> Outcome<T> {
    match status {
        // 529 is what Anthropic answers while it is overloaded.
        429 | 529 => Outcome::Throttled { retry_after, fault },
        503 if retry_after.is_some() => Outcome::Throttled { retry_after, fault },
        408 | 425 | 500.. => Outcome::Fault(fault),
        400 | 422 => Outcome::Rejected { problem: fault.problem, by_size: false },
        413 => Outcome::Rejected { problem: fault.problem, by_size: true },
        _ => Outcome::Refused(fault),
    }
}

/// Describes an answer, with the endpoint's own message if it may be passed on, and without the key.
fn said(answered: &str, body: &[u8], secret: Option<&Secret>, quote: bool) -> String {
    let text = match error_body::message(body).filter(|_| quote) {
        Some(message) => format!("{answered}: {message}"),
        None => answered.to_string(),
    };
    secret.map_or(text.clone(), |secret| secret.redact(&text))
}

fn of_unusable<T>(unusable: Unusable, secret: Option<&Secret>) -> Outcome<T> {
    match unusable {
        Unusable::Unreadable(problem) => {
            Outcome::Fault(Fault { problem, status: "its answer could not be read".into() })
        }
        Unusable::Truncated(problem) => Outcome::Rejected { problem, by_size: true },
        Unusable::Unexpected(problem) => Outcome::Refused(Fault { status: problem.clone(), problem }),
        Unusable::Rejected(problem) => {
            let problem = secret.map_or(problem.clone(), |secret| secret.redact(&problem));
            Outcome::Rejected { problem, by_size: false }
        }
    }
}

/// Classifies a missing reply. `too_long` is what a reply means that is longer than expected, if it is not a
/// fault of the endpoint.
pub fn unanswered<T>(failure: Failure, too_long: Option<Unusable>) -> Outcome<T> {
    match failure {
        Failure::TooLong(cap) => {
            let problem = format!("its answer is larger than the maximum of {cap} bytes");
            let fault = || Outcome::Fault(Fault { problem, status: "its answer is too large".into() });
            too_long.map_or_else(fault, |unusable| of_unusable(unusable, None))
        }
        Failure::Passing(status, problem) => Outcome::Fault(Fault { problem, status }),
        Failure::Lasting(problem) => Outcome::Refused(Fault { status: problem.clone(), problem }),
    }
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
    fn each_status_has_one_class() {
        let throttled = |status: u16, seconds: Option<u64>| Outcome::Throttled {
            retry_after: seconds.map(Duration::from_secs),
            fault: Fault {
                problem: format!("it answered {status}: slower"),
                status: format!("it answered {status}"),
            },
        };
        assert_eq!(of(200, None, "good"), Outcome::Answered(Answer { value: (), tokens: Some(COUNTED) }));
        assert_eq!(of(429, None, "slower"), throttled(429, None));
        assert_eq!(of(429, Some(3), "slower"), throttled(429, Some(3)));
        assert_eq!(of(529, None, "slower"), throttled(529, None));
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
    fn an_endpoints_message_is_for_the_client_alone_and_without_the_key() {
        let Outcome::Fault(fault) = of(500, None, "broken by sk-0123456789") else { panic!("no fault") };
        assert_eq!(fault.problem, "it answered 500: broken by ***");
        assert_eq!(fault.status, "it answered 500");
    }

    #[test]
    fn an_error_with_status_200_is_classified_by_the_status_it_means() {
        let problem = |outcome: &Outcome<()>| match outcome {
            Outcome::Throttled { fault, .. } | Outcome::Fault(fault) | Outcome::Refused(fault) => {
                assert_eq!(fault.status, "it answered 200 with an error");
                fault.problem.clone()
            }
            Outcome::Rejected { problem, .. } => problem.clone(),
            Outcome::Answered(_) => panic!("it was taken for good"),
        };
        for (body, kind) in [
            (r#"{"error": {"message": "quota of the gateway is used up"}}"#, "throttled"),
            (r#"{"error": {"message": "no", "code": 401}}"#, "refused"),
            (r#"{"error": {"message": "no", "type": "invalid_request_error"}}"#, "rejected"),
            (r#"{"error": "the model runner has stopped"}"#, "fault"),
        ] {
            let outcome = of(200, None, body);
            let is_kind = match &outcome {
                Outcome::Throttled { .. } => kind == "throttled",
                Outcome::Refused(_) => kind == "refused",
                Outcome::Rejected { .. } => kind == "rejected",
                Outcome::Fault(_) => kind == "fault",
                Outcome::Answered(_) => false,
            };
            assert!(is_kind, "{body}: {outcome:?}");
            let message = error_body::message(body.as_bytes()).unwrap();
            assert_eq!(problem(&outcome), format!("it answered 200 with an error: {message}"));
        }
        // An error next to a usable result is ignored.
        assert!(matches!(of(200, None, "good"), Outcome::Answered(_)));
    }
}
