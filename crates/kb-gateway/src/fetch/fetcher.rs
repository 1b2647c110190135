//! Asks for a page, again where that may help, and follows its redirects.

use super::super::endpoint::egress::origin;
use super::super::endpoint::pool::Endpoints;
use super::super::endpoint::transport::{Failure, parse_retry_after};
use super::super::protocol::{Fetch, Fetched, Part, Validators};
use super::super::semaphore::Place;
use super::super::turns::Whose;
use super::download::{Download, Fault, deadline, late};
use super::host::{Host, LONGEST_PAUSE, Rules};
use kb_types::sync::lock;
use reqwest::header::{
    CONTENT_TYPE, DATE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    LAST_MODIFIED, LOCATION, RETRY_AFTER,
};
use robotxt::{AccessResult, BYTE_LIMIT, Robots, robots_url};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tokio::time::{Instant, timeout_at};
use url::Url;

/// The name by which robots.txt addresses kb.
const ROBOT: &str = "kb";
/// The most redirects of a page.
const HOPS: usize = 5;
/// The most requests for a page that its host cannot serve now, and the first pause between them.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);
/// How long robots.txt holds, and how long it is not asked for again after it could not be read.
const ROBOTS: Duration = Duration::from_secs(3600);
const NO_ROBOTS: Duration = Duration::from_secs(60);
/// The most milliseconds that robots.txt may take.
const ROBOTS_MS: u64 = 20_000;
/// The most pages of which a part was sent and more is to come.
const OPEN: usize = 256;
/// Content that was changed more recently than this can change once more without a change of its date.
const SETTLED: Duration = Duration::from_secs(2);
/// The most bytes of a header that is kept, and of one that has a URL.
const HEADER: usize = 1024;
const LONG_HEADER: usize = 8192;

pub struct Fetcher {
    endpoints: Arc<Endpoints>,
    /// By scheme, host and port.
    hosts: Mutex<HashMap<String, Arc<Host>>>,
    open: Mutex<OpenDownloads>,
}

#[derive(Default)]
struct OpenDownloads {
    last: u64,
    /// With the connection that may read on.
    downloads: HashMap<u64, (u64, Download)>,
}

/// The final answer to a request, after redirects.
struct Answer {
    url: Url,
    host: Arc<Host>,
    status: u16,
    response: reqwest::Response,
    /// Whether it was asked whether its content has changed.
    was_conditional: bool,
    deadline: Instant,
    _place: Place,
}

/// What is asked for.
struct Ask<'a> {
    known: Option<&'a Validators>,
    timeout_ms: u64,
    honours_robots: bool,
    per_second: f64,
    whose: &'a Whose,
}

impl Fetcher {
    pub fn new(endpoints: Arc<Endpoints>) -> Fetcher {
        Fetcher { endpoints, hosts: Mutex::default(), open: Mutex::default() }
    }

    /// Fetches a page, or the first part of it.
    pub async fn fetch(&self, fetch: Fetch, whose: &Whose) -> Fetched {
        self.try_fetch(&fetch, whose).await.unwrap_or_else(|fetched| fetched)
    }

    /// The next part of a page, for the connection that has the parts before.
    pub async fn more(&self, number: u64, connection: u64) -> Fetched {
        let found = {
            let mut open = lock(&self.open);
            match open.downloads.get(&number) {
                Some((owner, _)) if *owner == connection => open.downloads.remove(&number),
                _ => None,
            }
        };
        let Some((_, mut download)) = found else {
            return failed("the rest of it is no longer there", true);
        };
        match download.part().await {
            Ok((bytes, is_last)) => Fetched::More(self.part(bytes, is_last, download, connection)),
            Err(fault) => of_fault(fault),
        }
    }

    /// Forgets hosts that nobody asks, and downloads that nobody may read on.
    pub fn forget_idle(&self) {
        lock(&self.hosts).retain(|_, host| !host.is_idle(ROBOTS) || Arc::strong_count(host) > 1);
        let now = Instant::now();
        lock(&self.open).downloads.retain(|_, (_, download)| now < download.deadline);
    }

    async fn try_fetch(&self, fetch: &Fetch, whose: &Whose) -> Result<Fetched, Fetched> {
        let ask = Ask {
            known: fetch.known.as_ref(),
            timeout_ms: fetch.timeout_ms,
            honours_robots: fetch.robots,
            per_second: fetch.per_second,
            whose,
        };
        let mut attempt = 1;
        loop {
            let answer = self.follow(&fetch.url, &ask).await?;
            let status = answer.status;
            if matches!(status, 408 | 429 | 500 | 502..=504) {
                let wait = self.pause_after(&answer, attempt);
                if attempt < ATTEMPTS && wait <= LONGEST_PAUSE {
                    attempt += 1;
                    drop(answer);
                    tokio::time::sleep(wait).await;
                    continue;
                }
            }
            return self.read(answer, fetch, whose).await;
        }
    }

    /// How long to wait after an answer that says to come back later. A host that asks all to wait is left
    /// alone for so long.
    fn pause_after(&self, answer: &Answer, attempt: u32) -> Duration {
        let asked = text(answer.response.headers(), RETRY_AFTER)
            .and_then(|value| parse_retry_after(&value, SystemTime::now()));
        let wait = asked.unwrap_or(PAUSE * attempt);
        if asked.is_some() || answer.status == 429 {
            answer.host.pause(wait);
        }
        wait
    }

    /// Reads the final answer.
    async fn read(&self, answer: Answer, fetch: &Fetch, whose: &Whose) -> Result<Fetched, Fetched> {
        let Answer { url, host, status, response, was_conditional, deadline, _place } = answer;
        if !matches!(status, 200 | 203) {
            host.heard(true);
            let passing = matches!(status, 408 | 425 | 429 | 500..);
            return Err(match status {
                304 if was_conditional => Fetched::NotModified,
                404 | 410 => Fetched::Gone,
                _ => failed(&format!("its host answered with status {status}"), passing),
            });
        }
        let headers = response.headers();
        let etag = text(headers, ETAG);
        let last_modified =
            text(headers, LAST_MODIFIED).filter(|date| etag.is_some() || is_settled(date, headers));
        let content_type = text(headers, CONTENT_TYPE);
        let validators = Validators { url: url.to_string(), etag, last_modified };
        let mut download = Download::new(response, fetch.max_bytes, deadline).map_err(of_fault)?;
        let part = download.part().await;
        host.heard(!matches!(part, Err(Fault::Failed(_))));
        let (bytes, is_last) = part.map_err(of_fault)?;
        let part = self.part(bytes, is_last, download, whose.connection);
        Ok(Fetched::Page { validators, content_type, part })
    }

    /// A part, whose download is kept if there is more.
    fn part(&self, bytes: Vec<u8>, is_last: bool, download: Download, connection: u64) -> Part {
        if is_last {
            return Part { bytes, more: None };
        }
        let mut open = lock(&self.open);
        open.last += 1;
        let number = open.last;
        // Beyond that the next part is an error.
        if open.downloads.len() < OPEN {
            open.downloads.insert(number, (connection, download));
        }
        Part { bytes, more: Some(number) }
    }

    /// Asks for a page, and for what it redirects to. The error is what became of the page.
    async fn follow(&self, address: &str, ask: &Ask<'_>) -> Result<Answer, Fetched> {
        let (mut address, mut from): (String, Option<Url>) = (address.to_string(), None);
        for _ in 0..=HOPS {
            let (mut url, transport) = self.endpoints.page(&address).map_err(|problem| {
                let to = Url::parse(&address).ok().and_then(|url| url.host_str().map(str::to_string));
                match (&from, to) {
                    (Some(_), Some(to)) => failed(&format!("it redirects to {to}: {problem}"), false),
                    _ => failed(&problem, false),
                }
            })?;
            url.set_fragment(None);
            if from.as_ref().is_some_and(|from| from.scheme() == "https") && url.scheme() != "https" {
                return Err(failed("it redirects from https to http, which is not followed", false));
            }
            let host = self.host(&url);
            if ask.honours_robots {
                let rules = self.robots(&host, &url, ask).await;
                if !rules.allow(&url).map_err(|problem| failed(&problem, true))? {
                    return Err(Fetched::Disallowed);
                }
            }
            let known = ask.known.filter(|known| known.url == url.as_str());
            let headers = conditions(known);
            let was_conditional = !headers.is_empty();
            let place = host.turn(ask.per_second, ask.honours_robots, ask.whose).await;
            let place = place.map_err(|problem| failed(&problem, true))?;
            let deadline = deadline(ask.timeout_ms);
            let sent = timeout_at(deadline, transport.get(url.as_str(), headers)).await;
            let sent = sent.unwrap_or_else(|_| Err(late()));
            if matches!(sent, Err(Failure::Passing(..))) {
                host.heard(false);
            }
            let response = sent.map_err(of_failure)?;
            let status = response.status().as_u16();
            if !matches!(status, 301 | 302 | 303 | 307 | 308) {
                let _place = place;
                return Ok(Answer { url, host, status, response, was_conditional, deadline, _place });
            }
            let target = response.headers().get(LOCATION).filter(|target| target.len() <= LONG_HEADER);
            let target = target.map(|target| String::from_utf8_lossy(target.as_bytes()));
            let target = target.and_then(|target| url.join(&target).ok());
            let Some(target) = target else {
                return Err(failed(&format!("it redirects (status {status}) to no valid URL"), false));
            };
            (address, from) = (target.to_string(), Some(url));
        }
        Err(failed(&format!("it redirects more than {HOPS} times"), false))
    }

    fn host(&self, url: &Url) -> Arc<Host> {
        let mut hosts = lock(&self.hosts);
        let host = hosts.entry(origin(url.as_str()).unwrap_or_default());
        Arc::clone(host.or_insert_with(|| Arc::new(Host::new())))
    }

    /// What the robots.txt of a host says.
    async fn robots(&self, host: &Host, url: &Url, ask: &Ask<'_>) -> Rules {
        let mut kept = host.robots.lock().await;
        if let Some((rules, until)) = kept.as_ref()
            && Instant::now() < *until
        {
            return rules.clone();
        }
        // Boxed, because it follows redirects by the function that asks for it.
        let rules = Box::pin(self.read_robots(url, ask)).await;
        if let Rules::Read(robots) = &rules {
            host.set_crawl_delay(robots.crawl_delay());
        }
        let time = if matches!(rules, Rules::Read(_)) { ROBOTS } else { NO_ROBOTS };
        *kept = Some((rules.clone(), Instant::now() + time));
        rules
    }

    async fn read_robots(&self, url: &Url, ask: &Ask<'_>) -> Rules {
        let address = match robots_url(url) {
            Ok(address) => address,
            Err(error) => return Rules::Unreachable(error.to_string()),
        };
        let ask = Ask {
            known: None,
            timeout_ms: ask.timeout_ms.min(ROBOTS_MS),
            honours_robots: false,
            per_second: ask.per_second,
            whose: ask.whose,
        };
        let read = |access: AccessResult<'_>| Rules::Read(Arc::new(Robots::from_access(access, ROBOT)));
        let answer = match self.follow(address.as_str(), &ask).await {
            Ok(answer) => answer,
            // It redirects to where kb does not go, or in circles: it has none.
            Err(Fetched::Failed { passing: false, .. }) => return read(AccessResult::Unavailable),
            Err(Fetched::Failed { problem, .. }) => return Rules::Unreachable(problem),
            Err(_) => return Rules::Unreachable("it cannot be read".into()),
        };
        match answer.status {
            200..300 => {}
            429 | 500.. => {
                self.pause_after(&answer, 1);
                return Rules::Unreachable(format!("status {}", answer.status));
            }
            _ => return read(AccessResult::Unavailable),
        }
        let mut content = Vec::new();
        let mut download = match Download::new(answer.response, usize::MAX, answer.deadline) {
            Ok(download) => download,
            Err(_) => return read(AccessResult::Unavailable),
        };
        loop {
            match download.part().await {
                Ok((part, is_last)) => {
                    content.extend(part);
                    if is_last || content.len() > BYTE_LIMIT {
                        return read(AccessResult::Successful(&content));
                    }
                }
                Err(_) => return Rules::Unreachable("it breaks off".into()),
            }
        }
    }
}

fn failed(problem: &str, passing: bool) -> Fetched {
    Fetched::Failed { problem: problem.to_string(), passing }
}

fn of_failure(failure: Failure) -> Fetched {
    match failure {
        Failure::Passing(_, problem) => failed(&problem, true),
        Failure::Lasting(problem) => failed(&problem, false),
        Failure::TooLong(_) => failed("its answer is too large", true),
    }
}

fn of_fault(fault: Fault) -> Fetched {
    match fault {
        Fault::TooLarge(size) => Fetched::TooLarge(size),
        Fault::Failed(failure) => of_failure(failure),
    }
}

/// The headers that ask whether the content has changed.
fn conditions(known: Option<&Validators>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let Some(known) = known else { return headers };
    let values = [(IF_NONE_MATCH, &known.etag), (IF_MODIFIED_SINCE, &known.last_modified)];
    for (name, value) in values {
        if let Some(value) = value.as_ref().and_then(|value| HeaderValue::from_str(value).ok()) {
            headers.insert(name, value);
        }
    }
    headers
}

/// Whether content of this date would have another date if it changed now (RFC 9110, 8.8.2.2). Dates have
/// whole seconds.
fn is_settled(last_modified: &str, headers: &HeaderMap) -> bool {
    let Ok(changed) = httpdate::parse_http_date(last_modified) else { return false };
    let sent = text(headers, DATE).and_then(|date| httpdate::parse_http_date(&date).ok());
    let sent = sent.unwrap_or_else(SystemTime::now);
    sent.duration_since(changed).is_ok_and(|age| age > SETTLED)
}

/// A header that is text and not too long.
fn text(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    let value = headers.get(name)?.to_str().ok()?.trim();
    (!value.is_empty() && (value.len() <= HEADER)).then(|| value.to_string())
}

#[cfg(test)]
#[path = "fetcher_tests.rs"]
mod tests;
