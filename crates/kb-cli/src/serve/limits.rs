//! What a request may take: bytes of bodies, and requests per minute.

use super::problem::Problem;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::Body;
use hyper::header::{CONTENT_LENGTH, HeaderMap};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Beyond this many bearers, those that are not slowed down are forgotten.
const BEARERS: usize = 10_000;

/// Answers below this number of bytes are not counted: there is one for each connection at most.
const SMALL: usize = 1 << 16;

/// Bytes for the bodies of all requests that are in memory.
pub struct Bodies {
    bytes: Arc<Semaphore>,
    most: usize,
    patience: Duration,
}

/// A body, which counts until it is dropped.
pub struct Held {
    pub bytes: Bytes,
    _permit: Option<OwnedSemaphorePermit>,
}

struct Sent {
    bytes: Vec<u8>,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Bodies {
    /// `most` bytes for each, and `together` for all; each must have arrived after `patience`.
    pub fn new(most: usize, together: usize, patience: Duration) -> Bodies {
        let together = together.min(Semaphore::MAX_PERMITS);
        Bodies { bytes: Arc::new(Semaphore::new(together)), most, patience }
    }

    /// Reads a body, and refuses it as soon as it is too long.
    pub async fn read<B>(&self, headers: &HeaderMap, mut body: B) -> Result<Held, Problem>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let announced =
            headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|length| length > self.most as u64) {
            return Err(self.too_long());
        }
        let read = async {
            let mut bytes = Vec::new();
            let mut permit: Option<OwnedSemaphorePermit> = None;
            while let Some(frame) = body.frame().await {
                let frame =
                    frame.map_err(|_| Problem::new(StatusCode::BAD_REQUEST, "the body ended too early"))?;
                let Ok(data) = frame.into_data() else {
                    continue;
                };
                if bytes.len() + data.len() > self.most {
                    return Err(self.too_long());
                }
                let count = u32::try_from(data.len()).map_err(|_| self.too_long())?;
                // Requests that wait for each other's bytes would wait for ever.
                let more = self.bytes.clone().try_acquire_many_owned(count).map_err(|_| {
                    Problem::unavailable("the server has too many bodies of requests in memory")
                })?;
                match &mut permit {
                    Some(permit) => permit.merge(more),
                    None => permit = Some(more),
                }
                bytes.extend_from_slice(&data);
            }
            Ok(Held { bytes: bytes.into(), _permit: permit })
        };
        tokio::time::timeout(self.patience, read)
            .await
            .map_err(|_| Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"))?
    }

    /// A copy of an answer, whose bytes count like those of bodies until it has been sent: clients that read
    /// slowly keep answers in memory.
    pub fn hold(&self, bytes: &[u8]) -> Result<Bytes, Problem> {
        if bytes.len() < SMALL {
            return Ok(Bytes::copy_from_slice(bytes));
        }
        let permit = u32::try_from(bytes.len())
            .ok()
            .and_then(|count| self.bytes.clone().try_acquire_many_owned(count).ok());
        let permit =
            permit.ok_or_else(|| Problem::unavailable("the server has too many answers in memory"))?;
        Ok(Bytes::from_owner(Sent { bytes: bytes.to_vec(), _permit: permit }))
    }

    fn too_long(&self) -> Problem {
        Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body is longer than {} bytes, which is the limit of --max-body", self.most),
        )
    }
}

/// Requests per minute of each bearer: a bucket that holds what a minute allows, and fills evenly.
pub struct Rates {
    default: Option<u32>,
    buckets: Mutex<HashMap<String, Bucket>>,
}

struct Bucket {
    /// The rate, if the bearer has one of its own.
    own: Option<u32>,
    name: String,
    requests: f64,
    since: Instant,
}

impl Rates {
    pub fn new(default: Option<u32>) -> Rates {
        Rates { default, buckets: Mutex::new(HashMap::new()) }
    }

    /// The name of a bearer who has called before.
    pub fn name(&self, bearer: &str) -> Option<String> {
        self.buckets.lock().ok()?.get(bearer).map(|bucket| bucket.name.clone())
    }

    /// Says which rate the bearer has, and its name for the log.
    pub fn set(&self, bearer: &str, own: Option<u32>, name: &str) {
        let Ok(mut buckets) = self.buckets.lock() else {
            return;
        };
        if let Some(bucket) = buckets.get_mut(bearer) {
            bucket.own = own;
            bucket.name = name.into();
            return;
        }
        let now = Instant::now();
        if buckets.len() >= BEARERS {
            buckets.retain(|_, bucket| {
                let rate = bucket.own.or(self.default);
                rate.is_some_and(|rate| bucket.requests_at(now, f64::from(rate)) < f64::from(rate))
            });
            if buckets.len() >= BEARERS {
                buckets.clear();
            }
        }
        let requests = own.or(self.default).map_or(0.0, f64::from);
        buckets.insert(bearer.into(), Bucket { own, name: name.into(), requests, since: now });
    }

    pub fn forget(&self, bearer: &str) {
        if let Ok(mut buckets) = self.buckets.lock() {
            buckets.remove(bearer);
        }
    }

    /// Counts a request of the bearer, or says after how many seconds the next one is allowed.
    pub fn count(&self, bearer: &str) -> Result<(), u64> {
        self.count_at(bearer, Instant::now())
    }

    fn count_at(&self, bearer: &str, now: Instant) -> Result<(), u64> {
        if self.name(bearer).is_none() {
            if self.default.is_none() {
                return Ok(());
            }
            self.set(bearer, None, "");
        }
        let Ok(mut buckets) = self.buckets.lock() else {
            return Ok(());
        };
        let Some(bucket) = buckets.get_mut(bearer) else {
            return Ok(());
        };
        let Some(rate) = bucket.own.or(self.default).map(f64::from) else {
            return Ok(());
        };
        bucket.requests = bucket.requests_at(now, rate);
        bucket.since = now;
        if bucket.requests < 1.0 {
            let seconds = ((1.0 - bucket.requests) * 60.0 / rate.max(f64::MIN_POSITIVE)).ceil();
            return Err(if seconds < 3600.0 { seconds as u64 } else { 3600 });
        }
        bucket.requests -= 1.0;
        Ok(())
    }
}

impl Bucket {
    fn requests_at(&self, now: Instant, rate: f64) -> f64 {
        let passed = now.saturating_duration_since(self.since).as_secs_f64();
        (self.requests + passed * rate / 60.0).min(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use http_body_util::{Full, StreamBody};
    use hyper::body::Frame;
    use std::convert::Infallible;

    fn bodies() -> Bodies {
        Bodies::new(10, 15, Duration::from_millis(200))
    }

    async fn status(bodies: &Bodies, headers: &HeaderMap, body: Full<Bytes>) -> u16 {
        bodies.read(headers, body).await.map_or_else(|problem| problem.status.as_u16(), |_| 200)
    }

    #[tokio::test]
    async fn a_body_that_says_it_is_too_long_is_refused_unread() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_LENGTH, 11.into());
        assert_eq!(status(&bodies(), &headers, Full::default()).await, 413);
        assert_eq!(status(&bodies(), &HeaderMap::new(), Full::from("0123456789")).await, 200);
        assert_eq!(status(&bodies(), &HeaderMap::new(), Full::from("0123456789a")).await, 413);
    }

    #[tokio::test]
    async fn a_body_without_an_end_is_refused_at_the_limit() {
        let frames = stream::repeat_with(|| Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"abc"))));
        let refused = bodies().read(&HeaderMap::new(), StreamBody::new(frames)).await.err().unwrap();
        assert_eq!(refused.status.as_u16(), 413);
    }

    #[tokio::test]
    async fn a_body_that_stops_arriving_is_given_up() {
        let frames = stream::pending::<Result<Frame<Bytes>, Infallible>>();
        let refused = bodies().read(&HeaderMap::new(), StreamBody::new(frames)).await.err().unwrap();
        assert_eq!(refused.status.as_u16(), 408);
    }

    #[tokio::test]
    async fn bodies_together_take_no_more_than_is_allowed() {
        let bodies = bodies();
        let first = bodies.read(&HeaderMap::new(), Full::from("0123456789")).await.ok().unwrap();
        assert_eq!(status(&bodies, &HeaderMap::new(), Full::from("0123456789")).await, 503);
        drop(first);
        assert_eq!(status(&bodies, &HeaderMap::new(), Full::from("0123456789")).await, 200);
    }

    #[test]
    fn answers_that_nobody_reads_take_no_more_than_is_allowed() {
        let bodies = Bodies::new(SMALL, 2 * SMALL, Duration::from_secs(1));
        let first = bodies.hold(&vec![1; SMALL + 1]).ok().unwrap();
        assert_eq!(bodies.hold(&vec![1; SMALL]).err().unwrap().status.as_u16(), 503);
        let part = first.slice(1..3);
        drop(first);
        assert!(bodies.hold(&vec![1; SMALL]).is_err());
        drop(part);
        assert!(bodies.hold(&vec![1; SMALL]).is_ok());
    }

    #[test]
    fn a_bearer_has_its_rate_and_slows_down_nobody_else() {
        let rates = Rates::new(None);
        rates.set("fast", None, "");
        rates.set("slow", Some(2), "");
        let start = Instant::now();
        assert_eq!(rates.count_at("slow", start), Ok(()));
        assert_eq!(rates.count_at("slow", start), Ok(()));
        assert_eq!(rates.count_at("slow", start), Err(30));
        assert_eq!(rates.count_at("slow", start + Duration::from_secs(31)), Ok(()));
        for _ in 0..1000 {
            assert_eq!(rates.count_at("fast", start), Ok(()));
        }
        rates.set("slow", Some(600), "");
        assert!(rates.count_at("slow", start + Duration::from_secs(33)).is_ok());
    }

    #[test]
    fn bearers_of_a_flood_are_forgotten() {
        let rates = Rates::new(Some(60));
        for number in 0..3 * BEARERS {
            assert!(rates.count(&number.to_string()).is_ok());
        }
        assert!(rates.buckets.lock().unwrap().len() <= BEARERS + 1);
    }
}
