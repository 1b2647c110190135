//! The limits of a credential: requests in flight, and requests and tokens a minute.

use super::super::turns::{Urgency, Whose};
use super::congestion::Window;
use super::rate::Rate;
use crate::semaphore::{Place, Places};
use kb_types::sync::lock;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Longer pauses than this, and more consecutive refusals under these limits or of one call, are not waited
/// for, and the caller gets an error.
const LONGEST_WAIT: Duration = Duration::from_secs(20);
pub const REFUSALS: u32 = 10;

/// How long nothing may be sent, and why. Everybody under the same limits may read the reason, so it has
/// nothing of the endpoint's own message, which may repeat a text.
#[derive(Debug, Clone, PartialEq)]
pub struct Throttled {
    pub wait: Duration,
    pub reason: String,
}

/// The limits of one credential, which all endpoints share that use it under the same limits.
pub struct Limits {
    /// The places for batches in flight, including those that wait for a retry.
    places: Arc<Places>,
    /// The places for requests in flight, as many as the window allows.
    in_flight: Arc<Places>,
    window: Mutex<Window>,
    requests: Option<Rate>,
    tokens: Option<Rate>,
    throttled: Mutex<Option<(Instant, String)>>,
    /// Is notified when a pause begins or becomes longer.
    paused: Notify,
}

/// A permit for one request in flight, which ends when this is dropped.
pub struct Permit {
    _place: Place,
    round: u64,
}

impl Limits {
    pub fn new(max_concurrency: usize, rpm: Option<u32>, tpm: Option<u32>) -> Limits {
        Limits {
            places: Places::new(max_concurrency),
            in_flight: Places::new(max_concurrency),
            window: Mutex::new(Window::new(max_concurrency)),
            requests: rpm.map(Rate::new),
            tokens: tpm.map(Rate::new),
            throttled: Mutex::default(),
            paused: Notify::new(),
        }
    }

    /// Waits for a place among the batches in flight.
    pub async fn place(&self, urgency: Urgency, whose: &Whose) -> Place {
        self.places.take(urgency, whose).await
    }

    /// Whether tokens are limited.
    pub fn has_token_rate(&self) -> bool {
        self.tokens.is_some()
    }

    /// Waits in turn until the rate allows a request. Returns an error if nothing may be sent for long.
    pub async fn request(&self, urgency: Urgency, whose: &Whose) -> Result<(), Throttled> {
        self.pause()?;
        if let Some(rate) = &self.requests {
            rate.take(1, urgency, whose).await;
        }
        Ok(())
    }

    /// Waits in turn until the rate allows this many tokens.
    pub async fn tokens(&self, count: u32, urgency: Urgency, whose: &Whose) {
        if let Some(rate) = &self.tokens {
            rate.take(count, urgency, whose).await;
        }
    }

    /// Waits until one more request may be in flight, after more urgent ones. During a pause there are no
    /// places, so that after it the most urgent request gets the first place, whichever wakes first.
    pub async fn permit(&self, urgency: Urgency, whose: &Whose) -> Result<Permit, Throttled> {
        let place = self.in_flight.take(urgency, whose);
        tokio::pin!(place);
        loop {
            let paused = self.paused.notified();
            tokio::pin!(paused);
            paused.as_mut().enable();
            let wait = self.pause()?;
            tokio::select! {
                biased;
                given = &mut place => {
                    // A pause that began meanwhile applies to this request, too.
                    if self.throttled().is_none() {
                        return Ok(Permit { _place: given, round: lock(&self.window).round() });
                    }
                    drop(given);
                    place.set(self.in_flight.take(urgency, whose));
                }
                () = paused => {}
                () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
            }
        }
    }

    /// How long the current pause lasts, if there is one. Returns an error if it is too long to wait for.
    fn pause(&self) -> Result<Option<Duration>, Throttled> {
        let throttled = self.throttled();
        self.change_window(|_| ());
        match throttled {
            Some(throttled) if throttled.wait > LONGEST_WAIT || lock(&self.window).refusals() >= REFUSALS => {
                Err(throttled)
            }
            throttled => Ok(throttled.map(|throttled| throttled.wait)),
        }
    }

    /// Records that a request was answered.
    pub fn pass(&self, permit: &Permit) {
        self.change_window(|window| window.pass(permit.round));
    }

    /// Records that a request was throttled. `asked` is the pause that the endpoint asked for. The pause
    /// lasts that long, and at least `pause` of the number of consecutive refusals, because a wrong clock or
    /// a zero must not cause a busy loop.
    pub fn throttle(
        &self,
        permit: &Permit,
        asked: Option<Duration>,
        pause: impl FnOnce(u32) -> Duration,
        reason: String,
    ) -> Throttled {
        let refusals = self.change_window(|window| window.refuse(permit.round));
        let wait = pause(refusals.max(1)).max(asked.unwrap_or_default());
        let until = Instant::now() + wait;
        {
            let mut throttled = lock(&self.throttled);
            if throttled.as_ref().is_none_or(|(before, _)| *before < until) {
                *throttled = Some((until, reason.clone()));
            }
        }
        self.change_window(|_| ());
        self.paused.notify_waiters();
        Throttled { wait, reason }
    }

    /// Changes how many requests may be in flight, which is none during a pause. Returns the number of
    /// consecutive refusals.
    fn change_window(&self, change: impl FnOnce(&mut Window)) -> u32 {
        let mut window = lock(&self.window);
        change(&mut window);
        let size = if self.throttled().is_some() { 0 } else { window.size() };
        self.in_flight.resize(size);
        window.refusals()
    }

    /// The current pause, if there is one.
    pub fn throttled(&self) -> Option<Throttled> {
        let mut throttled = lock(&self.throttled);
        let (until, reason) = throttled.as_ref()?;
        let wait = until.saturating_duration_since(Instant::now());
        if wait.is_zero() {
            *throttled = None;
            return None;
        }
        Some(Throttled { wait, reason: reason.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
    }

    async fn permit(limits: &Limits) -> Permit {
        limits.permit(Urgency::Ingest, &Whose::default()).await.unwrap()
    }

    #[test]
    fn a_long_pause_is_reported_and_a_short_one_is_waited_for() {
        runtime().block_on(async {
            let limits = Limits::new(1, None, None);
            let begun = Instant::now();
            let refused = permit(&limits).await;
            let throttle = |asked, reason: &str| {
                limits.throttle(&refused, Some(asked), |_| Duration::ZERO, reason.into());
            };
            throttle(Duration::from_millis(30), "busy");
            drop(refused);
            let refused = permit(&limits).await;
            assert!(begun.elapsed() >= Duration::from_millis(30));
            let throttle = |asked, reason: &str| {
                limits.throttle(&refused, Some(asked), |_| Duration::ZERO, reason.into());
            };
            // Requests that are waiting already get the error, too.
            let whose = Whose::default();
            let waiting = limits.permit(Urgency::Query, &whose);
            tokio::pin!(waiting);
            let early = tokio::time::timeout(Duration::from_millis(1), &mut waiting).await;
            assert!(early.is_err(), "there is one place");
            throttle(Duration::from_secs(3600), "quota");
            throttle(Duration::from_secs(1), "shorter");
            for throttled in [waiting.await.err(), limits.request(Urgency::Query, &whose).await.err()] {
                let throttled = throttled.unwrap();
                assert_eq!(throttled.reason, "quota");
                assert!(throttled.wait > Duration::from_secs(3500));
            }
        });
    }

    #[test]
    fn after_a_refusal_one_request_is_in_flight_until_it_passes() {
        runtime().block_on(async {
            let limits = Limits::new(4, None, None);
            let mut refused = Vec::new();
            for _ in 0..4 {
                refused.push(permit(&limits).await);
            }
            for permit in &refused {
                limits.throttle(permit, None, |_| Duration::from_millis(1), "busy".into());
            }
            drop(refused);
            let first = permit(&limits).await;
            let whose = Whose::default();
            let second = limits.permit(Urgency::Query, &whose);
            tokio::pin!(second);
            let early = tokio::time::timeout(Duration::from_millis(20), &mut second).await;
            assert!(early.is_err(), "two were in flight");
            limits.pass(&first);
            second.await.unwrap();
        });
    }

    #[test]
    fn an_endpoint_that_goes_on_refusing_is_reported() {
        runtime().block_on(async {
            let limits = Limits::new(4, None, None);
            let mut pauses = Vec::new();
            while let Ok(permit) = limits.permit(Urgency::Ingest, &Whose::default()).await {
                let pause = |refusals| {
                    pauses.push(refusals);
                    Duration::from_millis(200)
                };
                limits.throttle(&permit, None, pause, "busy".into());
            }
            assert_eq!(pauses, (1..=REFUSALS).collect::<Vec<_>>());
            // One more request is sent when the pause is over.
            tokio::time::sleep(Duration::from_millis(250)).await;
            permit(&limits).await;
        });
    }

    /// The order in which waiters pass that begin to wait in the order of `urgencies`.
    async fn order<F: Future<Output = ()> + Send + 'static>(
        urgencies: [Urgency; 4],
        wait: impl Fn(Urgency) -> F,
        begin: impl FnOnce(),
    ) -> Vec<Urgency> {
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for urgency in urgencies {
            let (order, wait) = (Arc::clone(&order), wait(urgency));
            tasks.push(tokio::spawn(async move {
                wait.await;
                order.lock().unwrap().push(urgency);
            }));
            tokio::task::yield_now().await;
        }
        begin();
        for task in tasks {
            task.await.unwrap();
        }
        std::mem::take(&mut *order.lock().unwrap())
    }

    const BACKWARDS: [Urgency; 4] = [Urgency::Ingest, Urgency::Ingest, Urgency::Bulk, Urgency::Query];
    const IN_ORDER: [Urgency; 4] = [Urgency::Query, Urgency::Bulk, Urgency::Ingest, Urgency::Ingest];

    #[test]
    fn a_question_does_not_wait_for_ingestion_that_waits_for_the_rate() {
        runtime().block_on(async {
            for by_tokens in [false, true] {
                // A hundred wait for one a second, so that even a stall of the machine does not let all of
                // them pass.
                let limits = Arc::new(Limits::new(1, Some(60), Some(60)));
                let take = |urgency| {
                    let limits = Arc::clone(&limits);
                    async move {
                        match by_tokens {
                            true => limits.tokens(1, urgency, &Whose::default()).await,
                            false => limits.request(urgency, &Whose::default()).await.unwrap(),
                        }
                    }
                };
                take(Urgency::Ingest).await;
                let ingestion: Vec<_> = (0..100).map(|_| tokio::spawn(take(Urgency::Ingest))).collect();
                tokio::task::yield_now().await;
                take(Urgency::Query).await;
                assert!(ingestion.iter().any(|task| !task.is_finished()), "by tokens: {by_tokens}");
                ingestion.iter().for_each(tokio::task::JoinHandle::abort);
            }
        });
    }

    #[test]
    fn more_urgent_requests_go_first_for_a_place_and_after_a_pause() {
        runtime().block_on(async {
            for is_pause in [false, true] {
                let limits = Arc::new(Limits::new(1, None, None));
                let first = permit(&limits).await;
                if is_pause {
                    limits.throttle(&first, None, |_| Duration::from_millis(50), "busy".into());
                }
                let wait = |urgency| {
                    let limits = Arc::clone(&limits);
                    async move {
                        let permit = limits.permit(urgency, &Whose::default()).await.unwrap();
                        tokio::task::yield_now().await;
                        limits.pass(&permit);
                    }
                };
                assert_eq!(order(BACKWARDS, wait, || drop(first)).await, IN_ORDER, "pause: {is_pause}");
            }
        });
    }
}
