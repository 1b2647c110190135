//! What a provider's answer means: vectors, a wish to be left alone, a fault that may pass, a refusal.

use super::egress::origin;
use super::exchange::Line;
use super::provider::TRUNCATED;
use super::transport::Reply;
use crate::error::Error;
use serde_json::Value;
use std::time::Duration;

/// Characters of a provider's own message that are passed on.
const MESSAGE: usize = 300;

/// Tokens at most that a provider is believed to have counted for one request.
const COUNTED: u64 = u32::MAX as u64;

/// Why texts got no vectors.
pub(super) enum Refusal {
    /// It may be for one of the texts; `by_size`: for being too many or too long.
    Texts { error: Error, by_size: bool },
    /// A fault that may pass, though it has not in as many requests as the config says: some providers answer
    /// so to a text they cannot take.
    Fault(Error),
    /// Whatever the texts are.
    All(Error),
}

/// A fault that may pass, told in two ways.
pub(super) struct Passing {
    /// To the client whose texts were sent.
    pub(super) problem: String,
    /// To everybody else: without the provider's words, which may repeat a text.
    pub(super) status: String,
}

/// What an answer means.
pub(super) enum Verdict {
    Vectors(Vec<Vec<f32>>, Option<u64>),
    /// To be left alone for a while; no failure. Said without the provider's words: everybody is told.
    Wait(Option<Duration>, String),
    /// A fault that may pass.
    Passing(Passing),
    Refused(Refusal),
}

impl Line {
    pub(super) fn judge(&self, reply: Reply, count: usize, quote: bool) -> Verdict {
        let status = format!("it answered {}", reply.status);
        let said = |reply: &Reply| {
            let text = match message(&reply.body).filter(|_| quote) {
                Some(message) => format!("{status}: {message}"),
                None => status.clone(),
            };
            self.secret.as_ref().map_or(text.clone(), |secret| secret.redact(&text))
        };
        let for_texts = |reply: &Reply, by_size| {
            Verdict::Refused(Refusal::Texts { error: self.problem(said(reply), false), by_size })
        };
        match reply.status {
            200..300 => return self.read(&reply.body, count),
            429 => {
                self.breaker.succeed();
                return Verdict::Wait(reply.retry_after, status);
            }
            503 if reply.retry_after.is_some() => {
                self.breaker.succeed();
                return Verdict::Wait(reply.retry_after, status);
            }
            408 | 425 | 500.. => {
                let problem = said(&reply);
                return Verdict::Passing(Passing { problem, status });
            }
            _ => self.breaker.succeed(),
        }
        match reply.status {
            300..400 => {
                let to = reply.location.as_deref().and_then(origin).unwrap_or_else(|| "another place".into());
                let problem =
                    format!("it answered {} with a redirect to {to}, which is not followed", reply.status);
                Verdict::Refused(Refusal::All(self.problem(problem, false)))
            }
            400 | 422 => for_texts(&reply, false),
            413 => for_texts(&reply, true),
            _ => Verdict::Refused(Refusal::All(self.problem(said(&reply), false))),
        }
    }

    fn read(&self, body: &[u8], count: usize) -> Verdict {
        let answer = match self.provider.read(&self.embedder, body, count) {
            Ok(answer) => answer,
            Err(problem) if problem == TRUNCATED => {
                self.breaker.succeed();
                let error = self.problem(problem, false);
                return Verdict::Refused(Refusal::Texts { error, by_size: true });
            }
            Err(problem) => {
                let status = "its answer could not be read".to_string();
                return Verdict::Passing(Passing { problem, status });
            }
        };
        self.breaker.succeed();
        let dimension = self.embedder.dimension;
        match answer.vectors.iter().find(|vector| vector.len() != dimension) {
            None => Verdict::Vectors(answer.vectors, answer.tokens.map(|tokens| tokens.min(COUNTED))),
            Some(vector) => {
                let problem = format!("vectors of dimension {} came back, not {dimension}", vector.len());
                Verdict::Refused(Refusal::All(self.problem(problem, false)))
            }
        }
    }
}

/// What a provider says of an error, from the places where providers put it; printable and short.
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

    #[test]
    fn a_providers_message_is_found_where_it_puts_it_and_made_one_short_line() {
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
