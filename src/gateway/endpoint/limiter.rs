//! What one credential may do: requests in flight, requests and tokens a minute.

use super::super::places::{Place, Places};
use super::super::turns::{Urgency, Whose};
use super::congestion::Window;
use crate::sync::lock;
use governor::clock::{Clock, DefaultClock};
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

type Bucket = RateLimiter<NotKeyed, InMemoryState, DefaultClock>;

/// Buckets fill at this part of what is allowed and hold the rest at most, so that no minute, wherever it
/// begins, sees more than is allowed.
const FILL: f64 = 0.985;

/// Longer pauses than this, and more refusals, in a row under these limits or of one call, are not waited for: the
/// caller gets an error.
const LONGEST_WAIT: Duration = Duration::from_secs(20);
pub const REFUSALS: u32 = 10;

/// Nothing may be sent for so long, and why. Everybody under the same limits may read the reason, so it has none of an
/// endpoint's words, which may repeat a text.
#[derive(Debug, Clone, PartialEq)]
pub struct Throttled {
    pub wait: Duration,
    pub reason: String,
}

/// The limits of one credential, shared by all endpoints that use it under the same limits.
pub struct Limits {
    /// For batches that are being sent, those that wait for another attempt included.
    places: Arc<Places>,
    /// For requests in flight, as many as the window has.
    in_flight: Arc<Places>,
    window: Mutex<Window>,
    /// One request at a time waits for the rate: otherwise less urgent ones would be served as often.
    rate: Arc<Places>,
    requests: Option<Bucket>,
    tokens: Option<(Bucket, u32)>,
    throttled: Mutex<Option<(Instant, String)>>,
}

/// Permission for one request to be in flight, until this is dropped.
pub struct Permit {
    _place: Place,
    round: u64,
}

/// A bucket of `per_minute`, and what it holds at most.
fn bucket(per_minute: u32) -> Option<(Bucket, u32)> {
    let period = Duration::from_secs_f64(60.0 / (f64::from(per_minute) * FILL));
    let burst = 1 + (f64::from(per_minute) * (1.0 - FILL) / 2.0) as u32;
    let quota = Quota::with_period(period)?.allow_burst(NonZeroU32::new(burst)?);
    Some((RateLimiter::direct(quota), burst))
}

impl Limits {
    pub fn new(max_concurrency: usize, rpm: Option<u32>, tpm: Option<u32>) -> Limits {
        Limits {
            places: Places::new(max_concurrency),
            in_flight: Places::new(max_concurrency),
            window: Mutex::new(Window::new(max_concurrency)),
            rate: Places::new(1),
            requests: rpm.and_then(bucket).map(|(bucket, _)| bucket),
            tokens: tpm.and_then(bucket),
            throttled: Mutex::default(),
        }
    }

    /// Waits for a place among the batches that are being sent.
    pub async fn place(&self, urgency: Urgency, whose: &Whose) -> Place {
        self.places.take(urgency, whose).await
    }

    /// Waits until a request may be sent, after those that are more urgent; as [`Limits::request`].
    pub async fn request_in_turn(&self, urgency: Urgency, whose: &Whose) -> Result<(), Throttled> {
        let _turn = self.rate.take(urgency, whose).await;
        self.request().await
    }

    /// Whether tokens are bounded.
    pub fn has_token_rate(&self) -> bool {
        self.tokens.is_some()
    }

    /// Waits until the rate lets a request go, as long as that is not too long.
    pub async fn request(&self) -> Result<(), Throttled> {
        loop {
            if let Some(throttled) = self.throttled() {
                self.sit_out(throttled).await?;
                continue;
            }
            let Some(bucket) = &self.requests else { return Ok(()) };
            let Err(not_yet) = bucket.check() else { return Ok(()) };
            tokio::time::sleep(not_yet.wait_time_from(DefaultClock::default().now())).await;
        }
    }

    /// Waits until so many tokens may be sent.
    pub async fn tokens(&self, count: u32) {
        let Some((bucket, burst)) = &self.tokens else { return };
        let mut left = count;
        while let Some(part) = NonZeroU32::new(left.min(*burst)) {
            match bucket.check_n(part) {
                Ok(Ok(())) => left -= part.get(),
                Ok(Err(not_yet)) => {
                    tokio::time::sleep(not_yet.wait_time_from(DefaultClock::default().now())).await;
                }
                // More than the bucket ever holds, which no part is.
                Err(_) => return,
            }
        }
    }

    /// Waits until one more request may be in flight, after those that are more urgent.
    pub async fn permit(&self, urgency: Urgency, whose: &Whose) -> Result<Permit, Throttled> {
        loop {
            let place = self.in_flight.take(urgency, whose).await;
            // What the endpoint said to others meanwhile counts for this one, too.
            let Some(throttled) = self.throttled() else {
                return Ok(Permit { _place: place, round: lock(&self.window).round() });
            };
            drop(place);
            self.sit_out(throttled).await?;
        }
    }

    async fn sit_out(&self, throttled: Throttled) -> Result<(), Throttled> {
        if throttled.wait > LONGEST_WAIT || lock(&self.window).refusals() >= REFUSALS {
            return Err(throttled);
        }
        tokio::time::sleep(throttled.wait).await;
        Ok(())
    }

    /// A request was answered.
    pub fn pass(&self, permit: &Permit) {
        self.change_window(|window| window.pass(permit.round));
    }

    /// A request was refused for now; `asked` is how long the endpoint wants nothing to be sent. The pause is that
    /// long, and at least `pause` of the number of refusals in a row: a wrong clock or a zero must cause no busy loop.
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
        let mut throttled = lock(&self.throttled);
        if throttled.as_ref().is_none_or(|(before, _)| *before < until) {
            *throttled = Some((until, reason.clone()));
        }
        Throttled { wait, reason }
    }

    /// Changes how many requests may be in flight; returns the refusals in a row.
    fn change_window(&self, change: impl FnOnce(&mut Window)) -> u32 {
        let mut window = lock(&self.window);
        change(&mut window);
        self.in_flight.resize(window.size());
        window.refusals()
    }

    /// The pause that still lasts, if there is one.
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

    #[test]
    fn no_minute_sees_more_than_allowed_and_a_long_run_nearly_as_many() {
        // What a full bucket and a minute's filling let through, by the bucket's own figures.
        for per_minute in [1, 2, 59, 60, 133, 134, 600, 3000, 100_000] {
            let (_, burst) = bucket(per_minute).unwrap();
            let in_a_minute = (f64::from(per_minute) * FILL).floor() + f64::from(burst);
            assert!(in_a_minute <= f64::from(per_minute).max(1.0), "{per_minute}: {in_a_minute}");
            assert!(f64::from(per_minute) * FILL >= f64::from(per_minute) * 0.97, "{per_minute}");
        }
    }

    #[test]
    fn requests_are_spaced_by_the_rate() {
        runtime().block_on(async {
            let limits = Limits::new(1, Some(1200), None);
            let (_, burst) = bucket(1200).unwrap();
            for _ in 0..burst {
                limits.request().await.unwrap();
            }
            let begun = Instant::now();
            for _ in 0..4 {
                limits.request().await.unwrap();
            }
            // Four of 50.8 ms each, the first of which began when the bucket ran empty.
            assert!(begun.elapsed() >= Duration::from_millis(190), "{:?}", begun.elapsed());
        });
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
            limits.request().await.unwrap();
            assert!(begun.elapsed() >= Duration::from_millis(30));
            throttle(Duration::from_secs(3600), "quota");
            throttle(Duration::from_secs(1), "shorter");
            let throttled = limits.request().await.unwrap_err();
            assert_eq!(throttled.reason, "quota");
            assert!(throttled.wait > Duration::from_secs(3500));
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
            // One more is sent when the pause is over.
            tokio::time::sleep(Duration::from_millis(250)).await;
            permit(&limits).await;
        });
    }

    #[test]
    fn more_tokens_than_the_bucket_holds_are_paid_in_parts() {
        runtime().block_on(async {
            let limits = Limits::new(1, None, Some(60_000));
            let (_, burst) = bucket(60_000).unwrap();
            limits.tokens(burst).await;
            let begun = Instant::now();
            limits.tokens(burst).await;
            let full = Duration::from_secs_f64(f64::from(burst) / (1000.0 * FILL));
            assert!(begun.elapsed() >= full.mul_f64(0.95), "{:?} of {full:?}", begun.elapsed());
        });
    }

    #[test]
    fn who_waits_for_the_rate_waits_for_who_is_more_urgent() {
        runtime().block_on(async {
            let limits = Arc::new(Limits::new(1, Some(1200), None));
            let (_, burst) = bucket(1200).unwrap();
            for _ in 0..burst {
                limits.request().await.unwrap();
            }
            let order = Arc::new(Mutex::new(Vec::new()));
            let mut tasks = Vec::new();
            for urgency in [Urgency::Ingest, Urgency::Ingest, Urgency::Bulk, Urgency::Query] {
                let (limits, order) = (Arc::clone(&limits), Arc::clone(&order));
                tasks.push(tokio::spawn(async move {
                    limits.request_in_turn(urgency, &Whose::default()).await.unwrap();
                    order.lock().unwrap().push(urgency);
                }));
                tokio::task::yield_now().await;
            }
            for task in tasks {
                task.await.unwrap();
            }
            // The first waited already.
            let expected = [Urgency::Ingest, Urgency::Query, Urgency::Bulk, Urgency::Ingest];
            assert_eq!(*order.lock().unwrap(), expected);
        });
    }
}
