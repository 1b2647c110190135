//! Pages of the web: those that a source names, that a sitemap lists, or to which a page leads. Pure, apart
//! from the gateway, which fetches.
//!
//! `config.rs` has what a source may say, `addresses.rs` the names of pages, `fetching.rs` asks the gateway
//! for many pages at once, `links.rs` asks kb-extract what a page or a sitemap names, `sitemap.rs` and
//! `crawl.rs` list, and `version.rs` is by what a page is known again.
//!
//! **Invariant:** a listing is complete only if each page that it depends on was read.

mod addresses;
mod config;
mod crawl;
mod fetching;
mod links;
mod sitemap;
mod version;

use super::reader::{Content, Found, Item, Listing, READ_BYTES, Reader, Wanted};
use crate::extract::Program;
use config::Ways;
pub use config::WebConfig;
use fetching::{Fetching, Got, Page};
use kb_gateway::protocol::Client;
use kb_types::error::Result;
use kb_types::sync::lock;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use url::Url;
use version::Version;

/// After this time no further page is begun before what was read is put.
const TOGETHER: Duration = Duration::from_secs(5);

/// What a reader of pages works with.
#[derive(Clone)]
pub struct Means {
    /// For whom pages are fetched.
    pub client: Client,
    /// Reads links.
    pub program: Program,
    /// The most bytes of a page.
    pub max_size: usize,
}

/// Pages of the web.
pub struct Web {
    config: WebConfig,
    means: Means,
    /// Pages that were read when the source was listed.
    kept: Mutex<HashMap<String, Found>>,
}

impl Web {
    pub fn new(config: WebConfig, means: Means) -> Web {
        Web { config, means, kept: Mutex::default() }
    }

    fn fetching(&self) -> Fetching<'_> {
        let WebConfig { robots, rate, timeout_ms, .. } = self.config;
        Fetching { client: &self.means.client, robots, rate, timeout_ms, max_size: self.means.max_size }
    }

    /// The first of these pages, as far as they were kept.
    fn take_kept(&self, wanted: &[Wanted]) -> Vec<Content> {
        let mut kept = lock(&self.kept);
        wanted.iter().map_while(|item| kept.remove(&item.path)).map(Content::Read).collect()
    }
}

impl Reader for Web {
    fn list(&self) -> Result<Listing> {
        let mut listing = Listing::default();
        let mut pages: Vec<Url> = self.config.urls.clone();
        match &self.config.ways {
            Ways::Listed { sitemap: None } => {}
            Ways::Listed { sitemap: Some(sitemap) } => {
                let found = sitemap::list(sitemap, &self.fetching(), &self.means.program)?;
                pages.extend(found.pages);
                listing.failed = found.failed;
                listing.problem = found.problem;
            }
            Ways::Crawl(crawl) => {
                let crawled = crawl::list(&pages, crawl, &self.fetching(), &self.means.program)?;
                *lock(&self.kept) = crawled.kept;
                return Ok(crawled.listing);
            }
        }
        let pages = addresses::alternating(pages);
        listing.items =
            pages.into_iter().map(|url| Item { path: url.into(), version: None, size: 0 }).collect();
        Ok(listing)
    }

    fn read(&self, wanted: &[Wanted]) -> Result<Vec<Content>> {
        let kept = self.take_kept(wanted);
        if !kept.is_empty() {
            return Ok(kept);
        }
        let (begun, bytes) = (Instant::now(), RefCell::new(0));
        let mut waiting = wanted.iter();
        let known: HashMap<&str, Option<Version>> = wanted
            .iter()
            .map(|item| {
                (item.path.as_str(), item.known.as_deref().and_then(|it| Version::parse(it, &item.path)))
            })
            .collect();
        let next = || {
            let is_full = *bytes.borrow() >= READ_BYTES || begun.elapsed() >= TOGETHER;
            if is_full && waiting.len() < wanted.len() {
                return None;
            }
            let item = waiting.next()?;
            let known = known.get(item.path.as_str()).cloned().flatten();
            Some((item.path.clone(), known.map(|version| version.validators)))
        };
        let mut read: HashMap<String, Content> = HashMap::new();
        let take = |url: String, got| {
            let content = content(got, &url, known.get(url.as_str()).and_then(Option::as_ref));
            if let Content::Read(found) = &content {
                *bytes.borrow_mut() += found.bytes.len();
            }
            read.insert(url, content);
        };
        self.fetching().run(next, take)?;
        Ok(wanted.iter().map_while(|item| read.remove(&item.path)).collect())
    }

    fn uri(&self, path: &str) -> String {
        path.to_string()
    }

    fn nothing(&self) -> String {
        "no page is listed".into()
    }

    fn needs_gateway(&self) -> bool {
        true
    }
}

/// What a document becomes of a page.
fn content(got: Got, asked: &str, known: Option<&Version>) -> Content {
    match got {
        Got::Unchanged => Content::Unchanged,
        Got::Gone => Content::Gone,
        Got::TooLarge(size) => Content::TooLarge(size),
        Got::Disallowed => {
            Content::Unreadable("the robots.txt of its host does not allow it to be read".into())
        }
        Got::Failed(problem) => Content::Unreadable(problem),
        Got::Page(page) => {
            let version = Version::of(&page);
            match known == Some(&version) {
                true => Content::Unchanged,
                false => Content::Read(found(page, &version, asked)),
            }
        }
    }
}

fn found(page: Page, version: &Version, asked: &str) -> Found {
    Found {
        version: version.text(asked),
        name: Some(addresses::file_name(&page.validators.url)),
        content_type: page.content_type,
        bytes: page.bytes,
        described: None,
    }
}
