//! One call of an endpoint: limits, budget, breaker, transport, and the handling of the reply. The purpose of
//! the call is an [`Operation`].

use super::super::cancellation::CancellationToken;
use super::super::turns::{Urgency, Whose};
use super::breaker::{Breaker, Open, Pass};
use super::budget::{Budget, Spent, part_of_day};
use super::classify::{Answer, Outcome, Unusable, classify, unanswered};
use super::limiter::{Limits, Permit, REFUSALS, Throttled};
use super::outages::Outages;
use super::secret::Secret;
use super::transport::{Auth, HttpRequest, Sending, Transport};
use super::usage::Usage;
use backon::{BackoffBuilder, ExponentialBuilder};
use kb_types::remote_settings::Retry;
use kb_types::sync::lock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The purpose of a call: how the request is written and its reply is read.
pub trait Operation {
    type Output;
    fn request(&self) -> HttpRequest;
    /// The most bytes of a successful reply.
    fn max_reply(&self) -> usize;
    fn read(&self, body: &[u8]) -> Result<Answer<Self::Output>, Unusable>;
    /// What a reply means that has more bytes than `max_reply`. None: a fault of the endpoint.
    fn too_long(&self) -> Option<Unusable> {
        None
    }
    /// A small operation of the same kind, which no endpoint has reason to reject.
    fn probe(&self) -> Self;
}

/// The configuration of an endpoint: how it is reached and what may be sent to it.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// The name in the server's log, such as llm "e".
    pub name: String,
    pub base_url: String,
    /// Replaces the default path.
    pub path: Option<String>,
    /// Whether it is called for something other than vectors.
    pub is_service: bool,
    pub auth: Auth,
    pub headers: BTreeMap<String, String>,
    /// The timeout of one request.
    pub timeout: Duration,
    pub retry: Retry,
    pub rpm: Option<u32>,
    pub tpm: Option<u32>,
    pub max_concurrency: usize,
    pub daily_token_budget: Option<u64>,
    /// The part of `daily_token_budget` that one tenant may use.
    pub tenant_budget: Option<u64>,
}

/// An endpoint with one key, and the state that it shares with others; see [`super::pool::Endpoints`].
pub struct Endpoint {
    pub configuration: Configuration,
    pub secret: Option<Secret>,
    pub limits: Arc<Limits>,
    pub budget: Arc<Budget>,
    /// The usage of tenants at all endpoints.
    pub quotas: Arc<Budget>,
    pub breaker: Arc<Breaker>,
    pub transport: Arc<Transport>,
    pub outages: Arc<Mutex<Outages>>,
}

#[derive(Clone, Copy)]
pub struct CallOptions<'a> {
    /// The estimated tokens of the request.
    pub estimate: u64,
    /// The tokens of the day that the requesting database knows of.
    pub spent: Spent,
    /// Set if the rate has already admitted the first request, with this many of its tokens.
    pub admitted: Option<u32>,
    /// Whether the endpoint's own error message may be passed on.
    pub quote: bool,
    /// The most requests, not counting those that are throttled.
    pub attempts: u32,
    /// Whether faults count for the breaker.
    pub blames_endpoint: bool,
    /// Whether the operation is a probe (see [`Operation::probe`]).
    pub is_probe: bool,
    pub urgency: Urgency,
    pub whose: &'a Whose,
    /// Once it is cancelled, nothing more is sent.
    pub cancellation: &'a CancellationToken,
}

/// Why a call got no answer.
#[derive(Debug, Clone, PartialEq)]
pub enum CallError {
    /// Nothing is sent for a while because of limits, a budget or the breaker. `of_tenant` means that only
    /// this tenant is affected.
    Paused { throttled: Throttled, of_tenant: bool },
    /// The client no longer waits.
    Cancelled,
    /// The endpoint rejects this request. `by_size` means that it is too large.
    Rejected { problem: String, by_size: bool },
    /// A transient fault that lasted for all attempts. Some endpoints also answer this way to requests that
    /// they cannot process.
    Fault(String),
    /// The endpoint refuses all requests, for example because of the key.
    Refused(String),
}

fn paused(throttled: Throttled) -> CallError {
    CallError::Paused { throttled, of_tenant: false }
}

fn is_open(open: Open) -> CallError {
    let reason = format!(
        "its endpoint keeps failing and is not called for a while; the last failure: {}",
        open.problem
    );
    paused(Throttled { wait: open.wait, reason })
}

/// Adds the endpoint's own message to the error for the client whose request it was.
fn quoting(error: CallError, said: &Option<String>) -> CallError {
    match (error, said) {
        (CallError::Paused { throttled, of_tenant }, Some(said)) => {
            CallError::Paused { throttled: Throttled { reason: said.clone(), ..throttled }, of_tenant }
        }
        (error, _) => error,
    }
}

/// Quotas are set for tenants of a database.
fn quota_key(whose: &Whose) -> String {
    format!("{} {}", whose.database, whose.tenant)
}

/// Refuses a request that exceeds a limit by itself, because it would wait for ever. A limit of 0 pauses
/// everything until it is raised.
fn too_much(tokens: u64, most: u64, what: &dyn Fn() -> String) -> Result<(), CallError> {
    match most > 0 && tokens > most {
        true => Err(CallError::Refused(format!("a request of {tokens} tokens exceeds the {}", what()))),
        false => Ok(()),
    }
}

fn spent_by_tenant(wait: Duration, what: &str) -> CallError {
    CallError::Paused {
        throttled: Throttled { wait, reason: format!("this tenant has spent the {what}") },
        of_tenant: true,
    }
}

impl Endpoint {
    /// Calls the endpoint, with as many attempts as the options allow. Adds the cost to `usage`.
    pub async fn call<O: Operation>(
        &self,
        operation: &O,
        options: &CallOptions<'_>,
        usage: &mut Usage,
    ) -> Result<O::Output, CallError> {
        let result = self.attempt(operation, options, usage).await;
        result.inspect(|_| lock(&self.outages).answer(&self.configuration.name, options.whose))
    }

    async fn attempt<O: Operation>(
        &self,
        operation: &O,
        options: &CallOptions<'_>,
        usage: &mut Usage,
    ) -> Result<O::Output, CallError> {
        let (mut pauses, mut faults, mut refusals) = (self.backoff(), 0, 0);
        let (mut admitted, mut is_retry) = (options.admitted, false);
        // The endpoint's message when it throttled the call. Errors of documents are also shown to others.
        let (mut said, may_quote) = (None, options.quote && options.urgency != Urgency::Ingest);
        let cancellation = options.cancellation;
        loop {
            let admission = cancellation.run_until_cancelled(self.admit(options, admitted.take())).await;
            let permit = admission.ok_or(CallError::Cancelled)?;
            let permit = permit.map_err(|error| quoting(self.is_down(error, options), &said))?;
            let reserved = self.reserve(options)?;
            let pass = self.pass_breaker(operation, options, &permit, usage).await.map_err(|error| {
                self.budget.spend(0, reserved);
                self.is_down(error, options)
            })?;
            usage.requests += 1;
            usage.retries += u64::from(is_retry);
            let outcome = self.send(operation, options.quote).await;
            let spent = match &outcome {
                Outcome::Answered(answer) => answer.tokens.unwrap_or(options.estimate),
                _ => 0,
            };
            usage.tokens += spent;
            self.budget.spend(spent, reserved);
            let throttled = self.inform(&outcome, &permit, options.blames_endpoint.then_some(pass));
            drop(permit);
            if let Some(throttled) = throttled {
                // The limits reset their count when another call passes, but this one may never pass.
                refusals += 1;
                if let Outcome::Throttled { fault, .. } = &outcome {
                    said = may_quote.then(|| fault.problem.clone());
                }
                if refusals == REFUSALS {
                    return Err(quoting(self.is_down(paused(throttled), options), &said));
                }
            }
            match outcome {
                Outcome::Answered(answer) => return Ok(answer.value),
                Outcome::Rejected { problem, by_size } => {
                    return Err(CallError::Rejected { problem, by_size });
                }
                Outcome::Refused(fault) => {
                    lock(&self.outages).refuse(&self.configuration.name, options.whose, &fault.status);
                    return Err(CallError::Refused(fault.problem));
                }
                // The next attempt waits for the limits.
                Outcome::Throttled { .. } => {}
                Outcome::Fault(fault) => {
                    faults += 1;
                    if faults >= options.attempts {
                        lock(&self.outages).count(&self.configuration.name, options.whose, &fault.status);
                        return Err(CallError::Fault(fault.problem));
                    }
                    let pause = tokio::time::sleep(pauses.next().unwrap_or_default());
                    cancellation.run_until_cancelled(pause).await.ok_or(CallError::Cancelled)?;
                }
            }
            is_retry = true;
        }
    }

    /// Records a pause for the log, and returns the error.
    fn is_down(&self, error: CallError, options: &CallOptions<'_>) -> CallError {
        if let CallError::Paused { throttled, .. } = &error {
            lock(&self.outages).refuse(&self.configuration.name, options.whose, &throttled.reason);
        }
        error
    }

    /// Waits until a request may be sent. For `admitted` see [`CallOptions`].
    async fn admit(&self, options: &CallOptions<'_>, admitted: Option<u32>) -> Result<Permit, CallError> {
        // The breaker is checked first, so that no part of the rate is wasted.
        self.breaker.look(Instant::now()).map_err(is_open)?;
        let CallOptions { urgency, whose, .. } = *options;
        if admitted.is_none() {
            self.limits.request(urgency, whose).await.map_err(paused)?;
        }
        let tokens = u32::try_from(options.estimate).unwrap_or(u32::MAX);
        self.limits.tokens(tokens.saturating_sub(admitted.unwrap_or(0)), urgency, whose).await;
        self.limits.permit(urgency, whose).await.map_err(paused)
    }

    /// Reserves tokens of the day's budget, and returns how many.
    fn reserve(&self, options: &CallOptions<'_>) -> Result<u64, CallError> {
        let Some(budget) = self.configuration.daily_token_budget else { return Ok(0) };
        let tokens = options.estimate;
        // A budget of 0 pauses everything until it is raised.
        if budget > 0 && tokens > part_of_day(budget, options.urgency) {
            let problem = format!("a request of {tokens} tokens exceeds its daily_token_budget of {budget}");
            return Err(CallError::Rejected { problem, by_size: true });
        }
        self.budget.reserve(budget, options.urgency, tokens, options.spent).map_err(paused)?;
        Ok(tokens)
    }

    /// Reserves tokens of a tenant's daily limits for this endpoint and for all endpoints.
    /// [`Endpoint::spend_of_tenant`] corrects the number afterwards.
    pub fn reserve_of_tenant(&self, whose: &Whose, tokens: u64, spent: Spent) -> Result<(), CallError> {
        let key = quota_key(whose);
        // Tokens are counted even without a limit, because another endpoint may have one, or one may be set
        // later.
        match spent.quota {
            None => self.quotas.spend_of_tenant(&key, tokens, 0),
            Some(quota) => {
                let known = (spent.day, spent.of_quota);
                let what = || format!("{quota} tokens that this tenant may spend per day (kb.set_quota)");
                too_much(tokens, quota, &what)?;
                let reserved = self.quotas.reserve_of_tenant(&key, quota, tokens, known);
                reserved.map_err(|wait| spent_by_tenant(wait, &what()))?;
            }
        }
        let share = match self.configuration.tenant_budget {
            None => {
                self.budget.spend_of_tenant(&whose.tenant, tokens, 0);
                Ok(())
            }
            Some(share) => {
                let what = || {
                    format!(
                        "{share} tokens that a tenant may spend per day (tenant_share of daily_token_budget)"
                    )
                };
                let known = (spent.day, spent.by_tenant);
                let reserve = || self.budget.reserve_of_tenant(&whose.tenant, share, tokens, known);
                too_much(tokens, share, &what)
                    .and_then(|()| reserve().map_err(|wait| spent_by_tenant(wait, &what())))
            }
        };
        share.inspect_err(|_| self.quotas.spend_of_tenant(&key, 0, tokens))
    }

    /// Records the tokens that a tenant really used; see [`Budget::spend_of_tenant`].
    pub fn spend_of_tenant(&self, whose: &Whose, tokens: u64, reserved: u64) {
        self.quotas.spend_of_tenant(&quota_key(whose), tokens, reserved);
        self.budget.spend_of_tenant(&whose.tenant, tokens, reserved);
    }

    /// Whether the breaker is open.
    pub fn is_open(&self) -> bool {
        self.breaker.look(Instant::now()).is_err()
    }

    /// Passes the breaker. If it is half open, the probe goes first.
    async fn pass_breaker<O: Operation>(
        &self,
        operation: &O,
        options: &CallOptions<'_>,
        permit: &Permit,
        usage: &mut Usage,
    ) -> Result<Pass, CallError> {
        match self.breaker.admit(Instant::now()).map_err(is_open)? {
            Pass::Probe if !options.is_probe => {
                self.probe(operation, options, permit, usage).await.map(|()| Pass::Free)
            }
            pass => Ok(pass),
        }
    }

    /// The half-open probe, which finds out whether the endpoint answers again.
    async fn probe<O: Operation>(
        &self,
        operation: &O,
        options: &CallOptions<'_>,
        permit: &Permit,
        usage: &mut Usage,
    ) -> Result<(), CallError> {
        let rate = self.limits.request(options.urgency, options.whose);
        let rate = options.cancellation.run_until_cancelled(rate).await;
        if let Err(error) = rate.ok_or(CallError::Cancelled).and_then(|rate| rate.map_err(paused)) {
            self.breaker.abandon(Instant::now());
            return Err(error);
        }
        usage.requests += 1;
        let outcome = self.send(&operation.probe(), false).await;
        let throttled = self.inform(&outcome, permit, Some(Pass::Probe));
        match outcome {
            Outcome::Fault(_) => self.breaker.look(Instant::now()).map_err(is_open),
            Outcome::Answered(Answer { tokens, .. }) => {
                let spent = tokens.unwrap_or(1);
                usage.tokens += spent;
                self.budget.spend(spent, 0);
                Ok(())
            }
            // Whatever the answer is, the endpoint answers.
            _ => throttled.map_or(Ok(()), |throttled| Err(paused(throttled))),
        }
    }

    async fn send<O: Operation>(&self, operation: &O, quote: bool) -> Outcome<O::Output> {
        let sending = Sending {
            auth: self.configuration.auth,
            secret: self.secret.as_ref(),
            headers: &self.configuration.headers,
            timeout: self.configuration.timeout,
            cap: operation.max_reply(),
        };
        match self.transport.send(&operation.request(), sending).await {
            Ok(reply) => classify(reply, self.secret.as_ref(), quote, |body| operation.read(body)),
            Err(failure) => unanswered(failure, operation.too_long()),
        }
    }

    /// Tells breaker and limits the outcome of a request. The breaker learns of a fault only if there is a
    /// `pass`. Returns the pause, if the endpoint asked for one.
    fn inform<T>(&self, outcome: &Outcome<T>, permit: &Permit, pass: Option<Pass>) -> Option<Throttled> {
        match outcome {
            Outcome::Fault(fault) => {
                if let Some(pass) = pass {
                    self.breaker.fault(Instant::now(), &fault.status, pass);
                }
                return None;
            }
            Outcome::Throttled { retry_after, fault } => {
                self.breaker.succeed();
                let pause = |refusals: u32| self.backoff().nth(refusals as usize - 1).unwrap_or_default();
                return Some(self.limits.throttle(permit, *retry_after, pause, fault.status.clone()));
            }
            Outcome::Answered(_) | Outcome::Rejected { .. } | Outcome::Refused(_) => {}
        }
        self.breaker.succeed();
        self.limits.pass(permit);
        None
    }

    /// An endless sequence of doubling pauses, with jitter so that clients that failed together do not retry
    /// together.
    fn backoff(&self) -> impl Iterator<Item = Duration> + use<> {
        let retry = self.configuration.retry;
        ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(retry.base_ms))
            .with_max_delay(Duration::from_millis(retry.max_ms.max(retry.base_ms)))
            .with_factor(2.0)
            .with_jitter()
            .without_max_times()
            .build()
    }
}
