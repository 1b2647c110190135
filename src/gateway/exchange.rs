//! One batch of texts at a remote provider: limits, breaker, retries, and halving until a refused text
//! stands alone.

use super::breaker::{Breaker, Open};
use super::budget::Budget;
use super::egress::origin;
use super::limiter::{Held, LONGEST_WAIT, Limits};
use super::local::finish;
use super::protocol::{Spent, Usage};
use super::provider::{Provider, TRUNCATED};
use super::secret::Secret;
use super::transport::{Failure, Reply, Sending, Transport};
use crate::error::{Error, Result};
use crate::model::{Embedder, Kind};
use backon::{BackoffBuilder, ExponentialBuilder};
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pauses asked for in a row before a document goes back to the queue.
const WAITS: u32 = 10;
/// A text that no provider has reason to refuse: whether a refusal is of the texts or of the request.
const HARMLESS: &str = "text";
/// Characters of a provider's own message that are passed on.
const MESSAGE: usize = 300;

/// An embedder as it is reached: dialect, key, limits.
pub struct Line {
    pub embedder: Embedder,
    pub kind: Kind,
    pub provider: &'static dyn Provider,
    pub secret: Option<Secret>,
    pub limits: Arc<Limits>,
    pub budget: Arc<Budget>,
    pub breaker: Arc<Breaker>,
    pub transport: Arc<Transport>,
}

/// Why texts got no vectors.
enum Refusal {
    /// It may be for one of the texts; `by_size`: for being too many or too long.
    Texts { error: Error, by_size: bool },
    /// A fault that may pass, though it has not in as many requests as the config says: some providers answer
    /// so to a text they cannot take.
    Fault(Error),
    /// Whatever the texts are.
    All(Error),
}

/// What is to be embedded.
#[derive(Clone, Copy)]
pub struct Batch<'a> {
    pub texts: &'a [String],
    /// Tokens of each.
    pub tokens: &'a [u32],
    /// What the asking database knows of the day's tokens.
    pub spent: Spent,
    /// The limiter has let the first request go, and so many of its tokens.
    pub prepaid: Option<u32>,
    /// All texts are of one client's request.
    pub is_of_one: bool,
}

/// Texts of one request.
struct Part<'a> {
    texts: &'a [String],
    estimate: u64,
    spent: Spent,
    prepaid: Option<u32>,
    /// What the provider says of an error may be passed on.
    quote: bool,
    /// Requests at most.
    tries: u32,
    /// A fault is the breaker's business.
    blames_endpoint: bool,
}

/// What an answer means.
enum Verdict {
    Vectors(Vec<Vec<f32>>, Option<u64>),
    /// To be left alone for a while; no failure.
    Wait(Option<Duration>, String),
    /// A fault that may pass.
    Passing(String),
    Refused(Refusal),
}

impl Line {
    /// A vector or an error for each text, in order.
    pub async fn embed(&self, batch: &Batch<'_>) -> (Vec<Result<Vec<f32>>>, Usage) {
        let Batch { texts, tokens, .. } = *batch;
        let mut usage = Usage::default();
        let mut results: Vec<Option<Result<Vec<f32>>>> = texts.iter().map(|_| None).collect();
        let mut ranges = Vec::new();
        ranges.push(0..texts.len());
        let mut prepaid = batch.prepaid;
        let mut is_of_texts = false;
        while let Some(range) = ranges.pop() {
            let part = Part {
                texts: &texts[range.clone()],
                estimate: tokens[range.clone()].iter().map(|n| u64::from(*n)).sum(),
                spent: batch.spent,
                prepaid: std::mem::take(&mut prepaid),
                // What a provider says may repeat a text, which is no other client's business.
                quote: batch.is_of_one || range.len() == 1,
                // While a bad text is looked for, nothing is tried twice, and the endpoint is not to blame.
                tries: if is_of_texts { 1 } else { self.tries() },
                blames_endpoint: !is_of_texts,
            };
            let fault = match self.attempt(&part, &mut usage).await {
                Ok(vectors) => {
                    for (i, vector) in range.zip(vectors) {
                        results[i] = Some(finish(&self.embedder, vector));
                    }
                    continue;
                }
                Err(Refusal::All(error) | Refusal::Fault(error) | Refusal::Texts { error, .. })
                    if range.len() == 1 && (is_of_texts || texts.len() == 1) =>
                {
                    results[range.start] = Some(Err(error));
                    continue;
                }
                Err(Refusal::All(error)) => error,
                Err(refusal) => {
                    let (error, by_size) = match refusal {
                        Refusal::Texts { error, by_size } => (error, by_size),
                        Refusal::Fault(error) | Refusal::All(error) => (error, false),
                    };
                    is_of_texts = is_of_texts || by_size || self.answers_others(batch, &mut usage).await;
                    if is_of_texts {
                        let middle = range.start + range.len() / 2;
                        ranges.push(middle..range.end);
                        ranges.push(range.start..middle);
                        continue;
                    }
                    error
                }
            };
            // What fails for every text is not tried with the others.
            for i in std::iter::once(range).chain(ranges.drain(..)).flatten() {
                results[i] = Some(Err(fault.clone()));
            }
        }
        let lost = || Err(Error::Internal("a text was not answered".into()));
        let results: Vec<_> = results.into_iter().map(|result| result.unwrap_or_else(lost)).collect();
        usage.texts = results.iter().filter(|result| result.is_ok()).count() as u64;
        (results, usage)
    }

    /// Whether the provider answers a text that it has no reason to refuse: then one of the batch's is to blame.
    async fn answers_others(&self, batch: &Batch<'_>, usage: &mut Usage) -> bool {
        let probe = [HARMLESS.to_string()];
        let part = Part {
            texts: &probe,
            estimate: 1,
            spent: batch.spent,
            prepaid: None,
            quote: false,
            tries: 1,
            blames_endpoint: true,
        };
        self.attempt(&part, usage).await.is_ok()
    }

    fn tries(&self) -> u32 {
        self.embedder.config.remote.retry.max_attempts
    }

    /// Why nothing may be sent now, as far as can be told without waiting.
    pub fn blocked(&self) -> bool {
        self.breaker.look(Instant::now()).is_err()
    }

    fn left_alone(&self, open: Open) -> Refusal {
        let reason = format!(
            "its endpoint keeps failing and is left alone for a while; the last time {}",
            open.problem
        );
        self.held(Held { wait: open.wait, reason })
    }

    async fn attempt(
        &self,
        part: &Part<'_>,
        usage: &mut Usage,
    ) -> std::result::Result<Vec<Vec<f32>>, Refusal> {
        let remote = &self.embedder.config.remote;
        let (estimate, mut prepaid) = (part.estimate, part.prepaid);
        let mut pauses = self.backoff();
        let (mut faults, mut waits) = (0, 0);
        loop {
            // Before a place in the rate is taken for nothing.
            self.breaker.look(Instant::now()).map_err(|open| self.left_alone(open))?;
            let prepaid = prepaid.take();
            if prepaid.is_none() {
                self.limits.request().await.map_err(|held| self.held(held))?;
            }
            let tokens = u32::try_from(estimate).unwrap_or(u32::MAX);
            self.limits.tokens(tokens.saturating_sub(prepaid.unwrap_or(0))).await;
            let reserved = if remote.daily_token_budget.is_some() { estimate } else { 0 };
            if let Some(budget) = remote.daily_token_budget {
                self.budget.reserve(budget, estimate, part.spent).map_err(|held| self.held(held))?;
            }
            if let Err(open) = self.breaker.admit(Instant::now()) {
                self.budget.spend(0, reserved);
                return Err(self.left_alone(open));
            }
            usage.requests += 1;
            let verdict = self.send(part).await;
            let spent = match &verdict {
                Verdict::Vectors(_, counted) => counted.unwrap_or(estimate),
                _ => 0,
            };
            self.budget.spend(spent, reserved);
            let pause = match verdict {
                Verdict::Vectors(vectors, _) => {
                    usage.tokens += spent;
                    return Ok(vectors);
                }
                Verdict::Refused(refusal) => return Err(refusal),
                Verdict::Wait(asked, reason) => {
                    waits += 1;
                    // At least as long as after a fault: a clock that is wrong, or a zero, must not make it spin.
                    let own = pauses.next().unwrap_or(LONGEST_WAIT);
                    let wait = asked.map_or(own, |asked| asked.max(own));
                    self.limits.hold(wait, reason.clone());
                    if wait > LONGEST_WAIT || waits >= WAITS {
                        return Err(self.held(Held { wait, reason }));
                    }
                    wait
                }
                Verdict::Passing(problem) => {
                    if part.blames_endpoint {
                        self.breaker.fault(Instant::now(), &problem);
                    }
                    faults += 1;
                    if faults >= part.tries {
                        return Err(Refusal::Fault(self.problem(problem, true)));
                    }
                    pauses.next().unwrap_or(Duration::from_millis(remote.retry.max_ms))
                }
            };
            usage.retries += 1;
            tokio::time::sleep(pause).await;
        }
    }

    /// Doubling pauses, jittered so that clients that failed together do not come back together.
    fn backoff(&self) -> impl Iterator<Item = Duration> + use<> {
        let retry = self.embedder.config.remote.retry;
        ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(retry.base_ms))
            .with_max_delay(Duration::from_millis(retry.max_ms.max(retry.base_ms)))
            .with_factor(2.0)
            .with_jitter()
            .without_max_times()
            .build()
    }

    async fn send(&self, part: &Part<'_>) -> Verdict {
        let texts = part.texts;
        let remote = &self.embedder.config.remote;
        let call = self.provider.call(&self.embedder, self.kind, texts);
        let sending = Sending {
            auth: self.provider.auth(),
            secret: self.secret.as_ref(),
            headers: &remote.headers,
            timeout: Duration::from_millis(remote.timeout_ms),
            // A number has at most 25 characters as JSON; the rest is wrapping.
            cap: 1024 * 1024 + texts.len() * self.embedder.dimension * 32,
        };
        match self.transport.send(&call, sending).await {
            Err(Failure::Passing(problem)) => Verdict::Passing(problem),
            Err(Failure::Lasting(problem)) => {
                self.breaker.succeed();
                Verdict::Refused(Refusal::All(self.problem(problem, false)))
            }
            Ok(reply) => self.judge(reply, texts.len(), part.quote),
        }
    }

    fn judge(&self, reply: Reply, count: usize, quote: bool) -> Verdict {
        let said = |reply: &Reply| {
            let text = match message(&reply.body).filter(|_| quote) {
                Some(message) => format!("it answered {}: {message}", reply.status),
                None => format!("it answered {}", reply.status),
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
                return Verdict::Wait(reply.retry_after, said(&reply));
            }
            503 if reply.retry_after.is_some() => {
                self.breaker.succeed();
                return Verdict::Wait(reply.retry_after, said(&reply));
            }
            408 | 425 | 500.. => return Verdict::Passing(said(&reply)),
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
                let error = self.problem(problem, false);
                return Verdict::Refused(Refusal::Texts { error, by_size: true });
            }
            Err(problem) => return Verdict::Passing(problem),
        };
        self.breaker.succeed();
        let dimension = self.embedder.dimension;
        match answer.vectors.iter().find(|vector| vector.len() != dimension) {
            None => Verdict::Vectors(answer.vectors, answer.tokens),
            Some(vector) => {
                let problem = format!("vectors of dimension {} came back, not {dimension}", vector.len());
                Verdict::Refused(Refusal::All(self.problem(problem, false)))
            }
        }
    }

    fn held(&self, held: Held) -> Refusal {
        Refusal::All(Error::Paused {
            embedder: self.embedder.id.clone(),
            problem: held.reason,
            retry_after_ms: u64::try_from(held.wait.as_millis()).unwrap_or(u64::MAX),
        })
    }

    fn problem(&self, problem: String, passing: bool) -> Error {
        Error::Provider { embedder: self.embedder.id.clone(), problem, passing }
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
