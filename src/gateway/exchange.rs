//! One batch of texts at a remote provider: limits, breaker, retries, and halving until a refused text
//! stands alone.

use super::asker::Asker;
use super::breaker::{Breaker, Open, Pass};
use super::budget::Budget;
use super::lane::NUMBER;
use super::limiter::{Held, LONGEST_WAIT, Limits};
use super::local::finish;
use super::protocol::{Spent, Usage};
use super::provider::Provider;
use super::secret::Secret;
use super::transport::{Failure, Sending, Transport};
use super::verdict::{Passing, Refusal, Verdict};
use crate::error::{Error, Result};
use crate::model::{Embedder, Kind};
use backon::{BackoffBuilder, ExponentialBuilder};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pauses asked for in a row before a document goes back to the queue.
const WAITS: u32 = 10;
/// A text that no provider has reason to refuse: whether a refusal is of the texts or of the request.
const HARMLESS: &str = "text";

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
    /// Nothing more is sent for one that does not wait any more.
    pub asker: &'a Asker,
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
    /// It is the text that no provider has reason to refuse.
    is_harmless: bool,
    asker: &'a Asker,
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
                is_harmless: false,
                asker: batch.asker,
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
                    let (mut error, by_size) = match refusal {
                        Refusal::Texts { error, by_size } => (error, by_size),
                        Refusal::Fault(error) | Refusal::All(error) => (error, false),
                    };
                    if !is_of_texts && !by_size {
                        match self.answers_others(batch, &mut usage).await {
                            Ok(()) => is_of_texts = true,
                            // It is not known who is to blame: no text is given up for that.
                            Err(passing) if passing.is_transient() => error = passing,
                            Err(_) => {}
                        }
                    }
                    is_of_texts |= by_size;
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
    async fn answers_others(&self, batch: &Batch<'_>, usage: &mut Usage) -> Result<()> {
        match self.attempt(&harmless(&[HARMLESS.to_string()], batch.spent, batch.asker), usage).await {
            Ok(_) => Ok(()),
            Err(Refusal::All(error) | Refusal::Fault(error) | Refusal::Texts { error, .. }) => Err(error),
        }
    }

    /// Tries whether an endpoint that was left alone answers again; an error if it does not.
    async fn knock(&self, part: &Part<'_>, usage: &mut Usage) -> std::result::Result<(), Refusal> {
        let gone = || Held { wait: Duration::ZERO, reason: "is not waited for".into() };
        let turn = part.asker.unless_gone(self.limits.request()).await;
        if let Err(held) = turn.unwrap_or_else(|| Err(gone())) {
            self.breaker.abandon(Instant::now());
            return Err(self.held(held));
        }
        usage.requests += 1;
        match self.send(&harmless(&[HARMLESS.to_string()], part.spent, part.asker)).await {
            Verdict::Passing(Passing { status, .. }) => {
                self.breaker.fault(Instant::now(), &status, Pass::Try);
                self.breaker.look(Instant::now()).map_err(|open| self.left_alone(open))
            }
            Verdict::Wait(asked, reason) => {
                let wait = asked.unwrap_or(LONGEST_WAIT);
                self.limits.hold(wait, reason.clone());
                Err(self.held(Held { wait, reason }))
            }
            Verdict::Vectors(_, counted) => {
                let spent = counted.unwrap_or(1);
                usage.tokens += spent;
                self.budget.spend(spent, 0);
                Ok(())
            }
            // Whatever it said, it answers.
            Verdict::Refused(_) => Ok(()),
        }
    }

    /// Waits until a request may be sent. `paid`: the limiter has let it go, and so many of its tokens.
    async fn ready(&self, estimate: u64, paid: Option<u32>) -> std::result::Result<(), Refusal> {
        // Before a place in the rate is taken for nothing.
        self.breaker.look(Instant::now()).map_err(|open| self.left_alone(open))?;
        if paid.is_none() {
            self.limits.request().await.map_err(|held| self.held(held))?;
        }
        let tokens = u32::try_from(estimate).unwrap_or(u32::MAX);
        self.limits.tokens(tokens.saturating_sub(paid.unwrap_or(0))).await;
        // What others were told meanwhile holds for this one, too.
        if self.limits.held().is_some() {
            self.limits.request().await.map_err(|held| self.held(held))?;
        }
        Ok(())
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
        let gone = || Refusal::All(Error::Gateway { problem: "is not waited for".into() });
        loop {
            part.asker.unless_gone(self.ready(estimate, prepaid.take())).await.ok_or_else(gone)??;
            let reserved = if remote.daily_token_budget.is_some() { estimate } else { 0 };
            if let Some(budget) = remote.daily_token_budget {
                // 0 holds all until it is raised.
                if budget > 0 && estimate > budget {
                    let problem =
                        format!("a text of {estimate} tokens is over its daily_token_budget of {budget}");
                    return Err(Refusal::Texts { error: self.problem(problem, false), by_size: true });
                }
                self.budget.reserve(budget, estimate, part.spent).map_err(|held| self.held(held))?;
            }
            let admitted = match self.breaker.admit(Instant::now()) {
                Ok(Pass::Try) if !part.is_harmless => self.knock(part, usage).await.map(|()| Pass::Free),
                Ok(pass) => Ok(pass),
                Err(open) => Err(self.left_alone(open)),
            };
            let pass = match admitted {
                Ok(pass) => pass,
                Err(refusal) => {
                    self.budget.spend(0, reserved);
                    return Err(refusal);
                }
            };
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
                Verdict::Passing(Passing { problem, status }) => {
                    if part.blames_endpoint {
                        self.breaker.fault(Instant::now(), &status, pass);
                    }
                    faults += 1;
                    if faults >= part.tries {
                        return Err(Refusal::Fault(self.problem(problem, true)));
                    }
                    pauses.next().unwrap_or(Duration::from_millis(remote.retry.max_ms))
                }
            };
            usage.retries += 1;
            part.asker.unless_gone(tokio::time::sleep(pause)).await.ok_or_else(gone)?;
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
            // The rest is wrapping.
            cap: 1024 * 1024 + texts.len() * self.embedder.dimension * NUMBER,
        };
        match self.transport.send(&call, sending).await {
            Err(Failure::Passing(status, problem)) => {
                Verdict::Passing(Passing { problem, status: status.into() })
            }
            Err(Failure::Lasting(problem)) => {
                self.breaker.succeed();
                Verdict::Refused(Refusal::All(self.problem(problem, false)))
            }
            Ok(reply) => self.judge(reply, texts.len(), part.quote),
        }
    }

    fn held(&self, held: Held) -> Refusal {
        Refusal::All(Error::Paused {
            embedder: self.embedder.id.clone(),
            problem: held.reason,
            retry_after_ms: u64::try_from(held.wait.as_millis()).unwrap_or(u64::MAX),
            of_tenant: false,
        })
    }

    pub(super) fn problem(&self, problem: String, passing: bool) -> Error {
        Error::Provider { embedder: self.embedder.id.clone(), problem, passing }
    }
}

/// The request that no provider has reason to refuse.
fn harmless<'a>(text: &'a [String; 1], spent: Spent, asker: &'a Asker) -> Part<'a> {
    Part {
        texts: text,
        estimate: 1,
        spent,
        prepaid: None,
        quote: false,
        tries: 1,
        blames_endpoint: true,
        is_harmless: true,
        asker,
    }
}
