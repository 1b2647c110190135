//! Lists buckets and reads objects of S3, of what has its interface, of Google Cloud Storage and of Azure.
//!
//! The crate object_store makes credentials and signs requests (`sign.rs`). It does not send them, for two
//! reasons. The rules of `endpoint/egress.rs` hold for each request, so that the gateway's own client sends
//! it. And the crate's listing fails as a whole at a key with an empty part (`a//b`), which storages allow.
//!
//! **Invariant:** the host and path of a request are those of the bucket, and the key is in it byte by byte.
//! No redirect is followed.

pub mod listing;
mod sign;

use super::endpoint::access::Access;
use super::endpoint::egress::Reach;
use super::endpoint::pool::{Endpoints, no_client};
use super::endpoint::secret::Secret;
use super::endpoint::transport::{Failure, Transport, classify, parse_retry_after};
use super::frame::MAX_OBJECTS;
use super::protocol::{ObjectPart, WantedPart};
use super::semaphore::Places;
use super::turns::{Urgency, Whose};
use backon::{BackoffBuilder, ExponentialBuilder};
use kb_types::bucket::{Bucket, Storage};
use kb_types::sync::lock;
use listing::{Page, plain_etag, read_error, read_page};
use object_store::client::{HttpRequest, HttpRequestBody};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{HeaderMap, HeaderValue};
use sign::Credential;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

/// The most objects of a page, which is the most that S3 lists.
const PAGE: &str = "1000";
/// The most bytes of a part of an object, which leaves room for the rest of an answer.
pub const PART: u64 = MAX_OBJECTS as u64 - 64 * 1024;
/// The most bytes of an error that are read.
const ERROR_CAP: usize = 16 * 1024;
/// The most characters of a storage's own message that are passed on.
const MESSAGE: usize = 300;
const TIMEOUT: Duration = Duration::from_secs(60);
/// How often a request is sent that fails for a passing reason, and the longest pause before it is sent
/// again.
pub const ATTEMPTS: usize = 5;
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Requests to all storages at the same time, which tenants take in turn.
const AT_ONCE: usize = 32;
/// A token of Google is used for so long; it is valid for an hour.
const TOKEN: Duration = Duration::from_secs(1800);
/// The version of Azure's interface for requests that are not signed.
const AZURE_VERSION: &str = "2023-11-03";
/// What is not written as it is in a path or in a query.
const CODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
const CODED_IN_PATH: &AsciiSet = &CODED.remove(b'/');

pub struct ObjectStorage {
    endpoints: Arc<Endpoints>,
    transports: Mutex<HashMap<Reach, Arc<Transport>>>,
    /// Tokens of Google by a digest of the key that signed them.
    tokens: Mutex<HashMap<[u8; 32], (Secret, Instant)>>,
    places: Arc<Places>,
}

/// The right to ask a bucket.
struct Right<'a> {
    bucket: &'a Bucket,
    credential: Credential,
    secret: Option<Secret>,
    transport: Arc<Transport>,
    whose: &'a Whose,
}

/// An answer that is no error.
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
    /// Whether the body goes on.
    is_cut: bool,
}

/// An answer that is an error, or that there is none.
struct Fault {
    status: u16,
    code: Option<String>,
    problem: String,
    /// Whether it is worth another attempt, and when the storage asks for it.
    is_passing: bool,
    retry_after: Option<Duration>,
}

impl Fault {
    fn lasting(problem: String) -> Fault {
        Fault { status: 0, code: None, problem, is_passing: false, retry_after: None }
    }

    fn passing(problem: String) -> Fault {
        Fault { is_passing: true, ..Fault::lasting(problem) }
    }
}

impl ObjectStorage {
    pub fn new(endpoints: Arc<Endpoints>) -> ObjectStorage {
        let places = Places::new(AT_ONCE);
        ObjectStorage { endpoints, transports: Mutex::default(), tokens: Mutex::default(), places }
    }

    /// A page of the objects whose keys begin with a prefix. `next` is what the page before said.
    pub async fn list(
        &self,
        bucket: &Bucket,
        access: &Access,
        prefix: &str,
        next: Option<&str>,
        whose: &Whose,
    ) -> Result<Page, String> {
        let right = self.right(bucket, access, whose).await?;
        let mut query = match bucket.storage {
            Storage::S3 | Storage::Gcs => {
                vec![("encoding-type", "url"), ("list-type", "2"), ("max-keys", PAGE)]
            }
            Storage::Azure => vec![("comp", "list"), ("maxresults", PAGE), ("restype", "container")],
        };
        if !prefix.is_empty() {
            query.push(("prefix", prefix));
        }
        let token = if bucket.storage == Storage::Azure { "marker" } else { "continuation-token" };
        query.extend(next.map(|next| (token, next)));
        let coded: Vec<String> = query
            .iter()
            .map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, CODED)))
            .collect();
        let url = format!("{}?{}", bucket.url(), coded.join("&"));
        let read = |answer: Answer| match answer.is_cut {
            true => Err(format!("its answer is larger than the maximum of {MAX_OBJECTS} bytes")),
            false => read_page(bucket.storage, &answer.body),
        };
        let page = self.ask(&right, &url, &[], MAX_OBJECTS, read).await.map_err(|fault| fault.problem)?;
        let bytes: usize =
            page.objects.iter().map(|object| object.key.len() + object.version.len() + 32).sum();
        match bytes <= MAX_OBJECTS {
            true => Ok(page),
            false => {
                Err(format!("its listing has a page of {bytes} bytes; at most {MAX_OBJECTS} are allowed"))
            }
        }
    }

    /// A part of an object, which begins at `part.from`.
    pub async fn read(
        &self,
        bucket: &Bucket,
        access: &Access,
        part: &WantedPart,
        whose: &Whose,
    ) -> ObjectPart {
        let right = match self.right(bucket, access, whose).await {
            Ok(right) => right,
            Err(problem) => return ObjectPart::Failed(problem),
        };
        // Such a URL means another object.
        if part.key.is_empty() || part.key.split('/').any(|part| [".", ".."].contains(&part)) {
            return ObjectPart::Failed("its key cannot be written in a URL".into());
        }
        let url = format!("{}/{}", bucket.url(), utf8_percent_encode(&part.key, CODED_IN_PATH));
        let range = format!("bytes={}-{}", part.from, part.from + PART - 1);
        let etag = part.etag.as_ref().map(|etag| format!("\"{etag}\""));
        let mut headers = vec![("range", range.as_str())];
        headers.extend(etag.as_deref().map(|etag| ("if-match", etag)));
        if bucket.storage == Storage::Gcs {
            // Otherwise it unpacks what is stored compressed, and sends no parts of it.
            headers.push(("accept-encoding", "gzip"));
        }
        let read = |answer| read_part(answer, part.from);
        let mut result = self.ask(&right, &url, &headers, PART as usize, read).await;
        // An empty object has no part that begins at 0.
        if part.from == 0 && matches!(&result, Err(fault) if fault.status == 416) {
            result =
                self.ask(&right, &url, &headers[1..], PART as usize, |answer| read_part(answer, 0)).await;
        }
        match result {
            Ok(read) => read,
            Err(Fault { status: 412, .. }) => ObjectPart::Changed,
            // It is shorter than it was.
            Err(Fault { status: 416, .. }) => ObjectPart::Changed,
            Err(fault) => match (fault.status, fault.code.as_deref()) {
                // Another 404 may mean that there is no such bucket, or that this is no storage.
                (404, Some("NoSuchKey" | "BlobNotFound")) => ObjectPart::Gone,
                _ => ObjectPart::Failed(fault.problem),
            },
        }
    }

    async fn right<'a>(
        &self,
        bucket: &'a Bucket,
        access: &Access,
        whose: &'a Whose,
    ) -> Result<Right<'a>, String> {
        let authorization = self.endpoints.authorize(&bucket.url(), true, access);
        let authorization =
            authorization.map_err(|e| e.strip_prefix("base_url: ").map_or(e.clone(), str::to_string))?;
        let secret = authorization.secret;
        let credential = match (bucket.storage, &secret) {
            (Storage::Gcs, Some(key)) => Credential::Bearer(self.token(key).await?),
            (storage, secret) => Credential::read(storage, secret.as_ref()).await?,
        };
        let transport = self.transport(authorization.reach)?;
        Ok(Right { bucket, credential, secret, transport, whose })
    }

    fn transport(&self, reach: Reach) -> Result<Arc<Transport>, String> {
        let mut transports = lock(&self.transports);
        if let Some(transport) = transports.get(&reach) {
            return Ok(Arc::clone(transport));
        }
        let made = Arc::new(Transport::unpacking_nothing(reach).map_err(no_client)?);
        transports.insert(reach, Arc::clone(&made));
        Ok(made)
    }

    /// A token of Google, which takes time to sign.
    async fn token(&self, key: &Secret) -> Result<Secret, String> {
        let digest = *blake3::hash(key.expose().as_bytes()).as_bytes();
        lock(&self.tokens).retain(|_, (_, made)| made.elapsed() < TOKEN);
        if let Some((token, _)) = lock(&self.tokens).get(&digest) {
            return Ok(token.clone());
        }
        let Credential::Bearer(token) = Credential::read(Storage::Gcs, Some(key)).await? else {
            return Err("its secret makes no token".into());
        };
        lock(&self.tokens).insert(digest, (token.clone(), Instant::now()));
        Ok(token)
    }

    /// Sends a request until there is an answer that can be read, a lasting fault, or no attempt left.
    async fn ask<T>(
        &self,
        right: &Right<'_>,
        url: &str,
        headers: &[(&'static str, &str)],
        most: usize,
        read: impl Fn(Answer) -> Result<T, String>,
    ) -> Result<T, Fault> {
        let pauses = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(300))
            .with_max_delay(LONGEST_PAUSE)
            .with_jitter()
            .with_max_times(ATTEMPTS - 1);
        let mut pauses = pauses.build();
        loop {
            let place = self.places.take(Urgency::Ingest, right.whose).await;
            let sent = tokio::time::timeout(TIMEOUT, send(right, url, headers, most)).await;
            drop(place);
            let late = || Fault::passing(format!("it did not answer within {} s", TIMEOUT.as_secs()));
            let fault = match sent.unwrap_or_else(|_| Err(late())) {
                // What cannot be read may have been cut off by a server between.
                Ok(answer) => match read(answer) {
                    Ok(read) => return Ok(read),
                    Err(problem) => Fault::passing(problem),
                },
                Err(fault) => fault,
            };
            let pause = pauses.next().filter(|_| fault.is_passing);
            let Some(pause) = pause else { return Err(fault) };
            tokio::time::sleep(pause.max(fault.retry_after.unwrap_or_default().min(LONGEST_PAUSE))).await;
        }
    }
}

/// Sends a request once, and reads at most `most` bytes of its answer.
async fn send(
    right: &Right<'_>,
    url: &str,
    headers: &[(&'static str, &str)],
    most: usize,
) -> Result<Answer, Fault> {
    let lasting = |problem: &str| Fault::lasting(problem.to_string());
    let mut request = HttpRequest::new(HttpRequestBody::empty());
    *request.uri_mut() = url.parse().map_err(|_| lasting("its URL is too long or invalid"))?;
    for (name, value) in headers {
        let value = HeaderValue::from_str(value).map_err(|_| lasting("a header is invalid"))?;
        request.headers_mut().insert(*name, value);
    }
    if right.bucket.storage == Storage::Azure {
        request.headers_mut().insert("x-ms-version", HeaderValue::from_static(AZURE_VERSION));
    }
    right.credential.sign(right.bucket, &mut request).map_err(Fault::lasting)?;
    let url = request.uri().to_string();
    let mut headers = std::mem::take(request.headers_mut());
    headers.values_mut().for_each(|value| value.set_sensitive(true));
    let failed = |failure| match failure {
        Failure::Passing(_, text) => Fault::passing(text),
        Failure::Lasting(text) => Fault::lasting(text),
        Failure::TooLong(_) => Fault::passing("its answer is too large".into()),
    };
    let mut response = right.transport.get(&url, headers).await.map_err(failed)?;
    let (status, is_good) = (response.status().as_u16(), response.status().is_success());
    let headers = std::mem::take(response.headers_mut());
    let most = if is_good { most } else { ERROR_CAP };
    let (mut body, mut is_cut) = (Vec::new(), false);
    loop {
        match response.chunk().await {
            Ok(Some(part)) => {
                let room = most - body.len();
                body.extend_from_slice(&part[..part.len().min(room)]);
                if part.len() > room {
                    is_cut = true;
                    break;
                }
            }
            Ok(None) => break,
            // The status says enough.
            Err(_) if !is_good => break,
            Err(error) => return Err(failed(classify(&error))),
        }
    }
    match is_good {
        true => Ok(Answer { status, headers, body, is_cut }),
        false => Err(fault(right, status, &headers, &body)),
    }
}

/// What an error means. Only code and message are passed on, and nothing of what is no storage.
fn fault(right: &Right, status: u16, headers: &HeaderMap, body: &[u8]) -> Fault {
    let (code, message) = read_error(body);
    let mut problem = format!("it answered with status {status}");
    if let Some(code) = &code {
        let said = message.map(|message| format!("{code}: {message}")).unwrap_or_else(|| code.clone());
        let line: Vec<&str> = said.lines().next().unwrap_or_default().split_whitespace().collect();
        let mut line: String = line.join(" ").chars().filter(|c| !c.is_control()).take(MESSAGE).collect();
        for part in right.secret.iter().flat_map(|secret| sign::parts(right.bucket.storage, secret)) {
            line = part.redact(&line);
        }
        problem = format!("{problem} ({line})");
    }
    let region = header(headers, "x-amz-bucket-region").filter(|region| *region != right.bucket.region());
    if let Some(region) = region.filter(|_| matches!(status, 301 | 307 | 400)) {
        problem = format!("{problem}; the bucket is in region {region}");
    }
    let retry_after = header(headers, "retry-after");
    Fault {
        status,
        code,
        problem,
        is_passing: matches!(status, 408 | 429 | 500 | 502 | 503 | 504),
        retry_after: retry_after.and_then(|value| parse_retry_after(value, SystemTime::now())),
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Reads a part of an object that begins at `from`.
fn read_part(answer: Answer, from: u64) -> Result<ObjectPart, String> {
    let Answer { status, headers, mut body, is_cut } = answer;
    let end = from + body.len() as u64;
    let size = match status {
        206 => {
            let range = header(&headers, "content-range").and_then(range);
            let (first, last, size) = range.ok_or("its answer does not say which part it is")?;
            if first != from || last.checked_add(1) != Some(end) || last >= size || is_cut {
                return Err("its answer is another part than the one that was asked for".into());
            }
            size
        }
        // A server that does not know parts sends the whole object.
        _ => {
            let length = header(&headers, "content-length").and_then(|length| length.parse().ok());
            let size = length.unwrap_or(if is_cut { u64::MAX } else { body.len() as u64 });
            if size > PART && from > 0 {
                return Ok(ObjectPart::Failed("it sends no parts of objects".into()));
            }
            body.drain(..body.len().min(usize::try_from(from).unwrap_or(usize::MAX)));
            size
        }
    };
    let etag = header(&headers, "etag").map(|etag| plain_etag(etag).to_string());
    let etag = etag.or_else(|| header(&headers, "last-modified").map(str::to_string));
    let content_type = header(&headers, "content-type").map(str::to_string);
    let is_packed = header(&headers, "content-encoding").is_some_and(|coding| coding.trim() == "gzip");
    Ok(ObjectPart::Read { bytes: body, size, etag, content_type, is_packed })
}

/// First byte, last byte and size of a Content-Range.
fn range(text: &str) -> Option<(u64, u64, u64)> {
    let (range, size) = text.trim().strip_prefix("bytes")?.trim().split_once('/')?;
    let (first, last) = range.split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?, size.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_storage_says_of_its_secret_is_not_repeated() {
        let config = serde_json::json!({"bucket": "b"});
        let bucket = Bucket::read(Storage::S3, &mut kb_types::json_reader::Fields::new("config", &config));
        let right = Right {
            bucket: &bucket,
            credential: Credential::Anonymous,
            secret: Some(Secret::new("AKIDEXAMPLE:wJalrXUtnFEMI")),
            transport: Arc::new(Transport::unpacking_nothing(Reach::Anywhere).unwrap()),
            whose: &Whose::default(),
        };
        let said = b"<Error><Code>Bad</Code><Message>key AKIDEXAMPLE wJalrXUtnFEMI\n more</Message></Error>";
        let problem = fault(&right, 400, &HeaderMap::new(), said).problem;
        assert_eq!(problem, "it answered with status 400 (Bad: key *** ***)");
    }
}
