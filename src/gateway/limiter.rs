//! What one credential may do: requests under way, requests and tokens a minute.

use super::protocol::Urgency;
use super::turns::{Place, Places, Whose};
use governor::clock::{Clock, DefaultClock};
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

type Bucket = RateLimiter<NotKeyed, InMemoryState, DefaultClock>;

/// Buckets fill at this part of what is allowed and hold the rest at most, so that no minute, wherever it
/// begins, sees more than is allowed.
const FILL: f64 = 0.985;

/// Longer pauses than this are not waited for here: the document goes back to the queue.
pub const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// Nothing may be sent for so long, and why. It is told to everybody under the same limits, so it has none of a
/// provider's words, which may repeat a text.
#[derive(Debug, Clone, PartialEq)]
pub struct Held {
    pub wait: Duration,
    pub reason: String,
}

/// The limits of one credential, shared by all embedders that use it under the same limits.
pub struct Limits {
    /// Of requests under way.
    places: Arc<Places>,
    /// Who waits for the rate: one at a time, or those that are less urgent would be served as often.
    rate: Arc<Places>,
    requests: Option<Bucket>,
    tokens: Option<(Bucket, u32)>,
    hold: Mutex<Option<(Instant, String)>>,
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
            rate: Places::new(1),
            requests: rpm.and_then(bucket).map(|(bucket, _)| bucket),
            tokens: tpm.and_then(bucket),
            hold: Mutex::default(),
        }
    }

    /// Waits for a place among the requests under way.
    pub async fn place(&self, urgency: Urgency, whose: &Whose) -> Place {
        self.places.take(urgency, whose).await
    }

    /// Waits until a request may be sent, after those that are more urgent; as [`Limits::request`].
    pub async fn request_in_turn(&self, urgency: Urgency, whose: &Whose) -> Result<(), Held> {
        let _turn = self.rate.take(urgency, whose).await;
        self.request().await
    }

    /// Whether tokens are bounded.
    pub fn has_token_rate(&self) -> bool {
        self.tokens.is_some()
    }

    /// Waits until a request may be sent, as long as that is not too long.
    pub async fn request(&self) -> Result<(), Held> {
        loop {
            match self.held() {
                Some(held) if held.wait > LONGEST_WAIT => return Err(held),
                Some(held) => tokio::time::sleep(held.wait).await,
                None => match &self.requests {
                    None => return Ok(()),
                    Some(bucket) => match bucket.check() {
                        Ok(()) => return Ok(()),
                        Err(not_yet) => {
                            tokio::time::sleep(not_yet.wait_time_from(DefaultClock::default().now())).await;
                        }
                    },
                },
            }
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
                // More than the bucket ever holds: never of a part.
                Err(_) => return,
            }
        }
    }

    /// The provider asked to be left alone for so long.
    pub fn hold(&self, wait: Duration, reason: String) {
        let until = Instant::now() + wait;
        let mut hold = self.hold.lock().unwrap_or_else(PoisonError::into_inner);
        if hold.as_ref().is_none_or(|(before, _)| *before < until) {
            *hold = Some((until, reason));
        }
    }

    /// What the provider asked for and is not over.
    pub fn held(&self) -> Option<Held> {
        let mut hold = self.hold.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, reason) = hold.as_ref()?;
        let wait = until.saturating_duration_since(Instant::now());
        if wait.is_zero() {
            *hold = None;
            return None;
        }
        Some(Held { wait, reason: reason.clone() })
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

    #[test]
    fn a_long_hold_is_reported_and_a_short_one_is_waited_for() {
        runtime().block_on(async {
            let limits = Limits::new(1, None, None);
            let begun = Instant::now();
            limits.hold(Duration::from_millis(30), "busy".into());
            limits.request().await.unwrap();
            assert!(begun.elapsed() >= Duration::from_millis(30));
            limits.hold(Duration::from_secs(3600), "quota".into());
            limits.hold(Duration::from_secs(1), "shorter".into());
            let held = limits.request().await.unwrap_err();
            assert_eq!(held.reason, "quota");
            assert!(held.wait > Duration::from_secs(3500));
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
