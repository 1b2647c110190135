//! Asks the gateway for pages, several at a time, on a thread that must not call PostgreSQL.

use super::addresses::site;
use crate::gateway::pump::Pump;
use kb_gateway::protocol::{Client, Fetch, Fetched, Part, Request, Response, Validators};
use kb_types::error::{Error, Result};
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use url::Url;

/// How many pages are under way at the same time, and how many of one site: of which the gateway would ask
/// for no more.
const AT_ONCE: usize = 8;
const OF_SITE: usize = 2;

/// How pages are fetched.
pub struct Fetching<'a> {
    pub client: &'a Client,
    pub robots: bool,
    /// Requests a second to a host.
    pub rate: f64,
    pub timeout_ms: u64,
    pub max_size: usize,
}

/// What became of a page.
#[derive(Debug)]
pub enum Got {
    Unchanged,
    Gone,
    TooLarge(usize),
    Disallowed,
    Failed(String),
    Page(Page),
}

#[derive(Debug)]
pub struct Page {
    pub bytes: Vec<u8>,
    /// With the address of the content, after redirects.
    pub validators: Validators,
    pub content_type: Option<String>,
}

/// An address, and what is known of its content.
type Wanted = (String, Option<Validators>);

#[derive(Default)]
struct UnderWay {
    /// The pages that are under way, by the number of the request that asks for them or for their next part.
    requests: HashMap<usize, Open>,
    /// Pages of which there is more, and the number by which that is asked for.
    more: VecDeque<(Open, u64)>,
    sites: HashMap<String, usize>,
    /// A page whose site has enough under way.
    held: Option<Wanted>,
    sent: usize,
    /// Why nothing more can be fetched.
    error: Option<Error>,
}

struct Open {
    address: String,
    site: String,
    page: Option<Page>,
}

impl Fetching<'_> {
    /// Fetches the pages that `next` returns, and gives each to `take`. Begins them in their order; they end
    /// in any. `next` is called again after each that ended. Errors: the gateway does not answer.
    pub fn run(
        &self,
        mut next: impl FnMut() -> Option<Wanted>,
        mut take: impl FnMut(String, Got),
    ) -> Result<()> {
        let under_way = RefCell::new(UnderWay::default());
        let send = || {
            let state = &mut *under_way.borrow_mut();
            if state.error.is_some() {
                return None;
            }
            let (open, request) = match state.more.pop_front() {
                Some((open, number)) => (open, Request::FetchMore(number)),
                None => {
                    let (address, known) = state.held.take().or_else(&mut next)?;
                    let of = Url::parse(&address).map(|url| site(&url).to_string()).unwrap_or_default();
                    let number = state.sites.entry(of.clone()).or_default();
                    if *number >= OF_SITE {
                        state.held = Some((address, known));
                        return None;
                    }
                    *number += 1;
                    let request = self.request(&address, known);
                    (Open { address, site: of, page: None }, request)
                }
            };
            state.requests.insert(state.sent, open);
            state.sent += 1;
            Some(request)
        };
        let receive = |number: usize, response: Response| {
            let Some((address, got)) = under_way.borrow_mut().receive(number, response) else { return };
            take(address, got);
        };
        Pump::open()?.run(AT_ONCE, send, receive)?;
        under_way.into_inner().error.map_or(Ok(()), Err)
    }

    /// Fetches one page.
    pub fn one(&self, address: &str) -> Result<Got> {
        let (mut wanted, mut got) = (Some((address.to_string(), None)), None);
        self.run(|| wanted.take(), |_, page| got = Some(page))?;
        got.ok_or_else(|| Error::Internal("the gateway did not answer for a page".into()))
    }

    fn request(&self, address: &str, known: Option<Validators>) -> Request {
        let fetch = Fetch {
            url: address.to_string(),
            known,
            max_bytes: self.max_size,
            timeout_ms: self.timeout_ms,
            robots: self.robots,
            per_second: self.rate,
        };
        Request::Fetch { fetch: Box::new(fetch), client: self.client.clone() }
    }
}

impl UnderWay {
    /// Takes an answer. Returns the page, if it is complete.
    fn receive(&mut self, number: usize, response: Response) -> Option<(String, Got)> {
        let mut open = self.requests.remove(&number)?;
        let fetched = match response {
            Response::Fetched(fetched) => fetched,
            Response::Error(fault) => {
                self.error.get_or_insert(fault.into());
                return None;
            }
            other => {
                let error = Error::Internal(format!("unexpected answer of the gateway: {other:?}"));
                self.error.get_or_insert(error);
                return None;
            }
        };
        let (page, more) = match fetched {
            Fetched::NotModified => return Some(self.end(open, Got::Unchanged)),
            Fetched::Gone => return Some(self.end(open, Got::Gone)),
            Fetched::TooLarge(size) => return Some(self.end(open, Got::TooLarge(size))),
            Fetched::Disallowed => return Some(self.end(open, Got::Disallowed)),
            Fetched::Failed { problem, .. } => return Some(self.end(open, Got::Failed(problem))),
            Fetched::Page { validators, content_type, part: Part { bytes, more } } => {
                (Page { bytes, validators, content_type }, more)
            }
            Fetched::More(Part { bytes, more }) => {
                let mut page = open.page.take()?;
                page.bytes.extend_from_slice(&bytes);
                (page, more)
            }
        };
        match more {
            Some(number) => {
                open.page = Some(page);
                self.more.push_back((open, number));
                None
            }
            None => Some(self.end(open, Got::Page(page))),
        }
    }

    fn end(&mut self, open: Open, got: Got) -> (String, Got) {
        if let Some(number) = self.sites.get_mut(&open.site) {
            *number -= 1;
        }
        (open.address, got)
    }
}
