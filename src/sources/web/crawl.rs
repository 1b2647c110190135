//! Lists the pages to which pages lead, level by level.
//!
//! Each page is read, in each run, because its links are not kept. What it says of itself is therefore known
//! when it is listed, and only pages that have changed are processed.

use super::addresses::{normal, site, within_site};
use super::config::Crawl;
use super::fetching::{Fetching, Got, Page};
use super::links::of_page;
use super::version::Version;
use super::{Listing, found};
use crate::extract::Program;
use crate::sources::reader::{Found, Item};
use kb_types::error::{Error, Result};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use url::Url;

/// The most bytes of pages that are kept until they are put. Others are fetched once more.
const KEPT: usize = 32 << 20;
/// What is no document, but something that a page shows or runs.
const SHOWN: [&str; 8] = [
    "image/",
    "audio/",
    "video/",
    "font/",
    "text/css",
    "text/javascript",
    "application/javascript",
    "application/wasm",
];

#[derive(Default)]
pub struct Crawled {
    pub listing: Listing,
    pub kept: HashMap<String, Found>,
}

/// Where a page was found.
#[derive(Clone)]
struct Link {
    url: Url,
    /// The site of the page where this began.
    site: String,
    is_start: bool,
}

struct Walk<'a> {
    crawl: &'a Crawl,
    crawled: Crawled,
    kept_bytes: usize,
    listed: HashSet<String>,
    seen: HashSet<Url>,
}

pub fn list(starts: &[Url], crawl: &Crawl, fetching: &Fetching, program: &Program) -> Result<Crawled> {
    let mut walk = Walk {
        crawl,
        crawled: Crawled::default(),
        kept_bytes: 0,
        listed: HashSet::new(),
        seen: starts.iter().cloned().collect(),
    };
    let start = |url: &Url| Link { url: url.clone(), site: site(url).to_string(), is_start: true };
    let mut level: Vec<Link> = starts.iter().map(start).collect();
    for depth in 0..=crawl.depth {
        if level.is_empty() {
            break;
        }
        // The last level's links are not followed.
        let follows = depth < crawl.depth;
        level = walk.read(&level, follows, fetching, program)?;
    }
    Ok(walk.crawled)
}

impl Walk<'_> {
    /// Reads the pages of a level. Returns those of the next one.
    fn read(
        &mut self,
        level: &[Link],
        follows: bool,
        fetching: &Fetching,
        program: &Program,
    ) -> Result<Vec<Link>> {
        let links: HashMap<&str, &Link> = level.iter().map(|link| (link.url.as_str(), link)).collect();
        let mut waiting = level.iter();
        let failed: RefCell<Option<Error>> = RefCell::default();
        let next = || match failed.borrow().is_some() {
            true => None,
            false => waiting.next().map(|link| (link.url.to_string(), None)),
        };
        let mut leading: HashMap<String, Vec<Url>> = HashMap::new();
        let take = |address: String, got| {
            let Some(link) = links.get(address.as_str()) else { return };
            match self.take(link, got, follows, program) {
                Ok(urls) => drop(leading.insert(address, urls)),
                Err(error) => drop(failed.borrow_mut().get_or_insert(error)),
            }
        };
        fetching.run(next, take)?;
        if let Some(error) = failed.into_inner() {
            return Err(error);
        }
        // In the order of the pages, so that each run finds the same where there are more than wanted.
        let mut next_level = Vec::new();
        for link in level {
            for url in leading.remove(link.url.as_str()).unwrap_or_default() {
                self.follow(link, url, &mut next_level);
            }
        }
        Ok(next_level)
    }

    fn follow(&mut self, from: &Link, url: Url, level: &mut Vec<Link>) {
        if site(&url) != from.site || !self.crawl.wants(within_site(&url)) || self.seen.contains(&url) {
            return;
        }
        if self.seen.len() >= self.crawl.max_pages {
            let problem = || format!("it leads to more than {} pages (max_pages)", self.crawl.max_pages);
            self.crawled.listing.problem.get_or_insert_with(problem);
            return;
        }
        self.seen.insert(url.clone());
        level.push(Link { url, site: from.site.clone(), is_start: false });
    }

    /// Takes a page into the listing. Returns where it leads to.
    fn take(&mut self, link: &Link, got: Got, follows: bool, program: &Program) -> Result<Vec<Url>> {
        let listing = &mut self.crawled.listing;
        match got {
            Got::Page(page) => self.take_page(link, page, follows, program),
            Got::Gone => Ok(Vec::new()),
            // Nobody asked for this page by its name.
            Got::Disallowed if !link.is_start => Ok(Vec::new()),
            // It has no text that could be read.
            Got::TooLarge(_) => {
                listing.items.push(Item { path: link.url.to_string(), version: None, size: 0 });
                Ok(Vec::new())
            }
            Got::Disallowed => {
                self.fail(link, "the robots.txt of its host does not allow it to be read".into());
                Ok(Vec::new())
            }
            Got::Failed(problem) => {
                self.fail(link, problem);
                Ok(Vec::new())
            }
            Got::Unchanged => {
                self.fail(link, "its host says that it has not changed, which was not asked".into());
                Ok(Vec::new())
            }
        }
    }

    /// The pages to which it leads are unknown, and so the listing is not complete.
    fn fail(&mut self, link: &Link, problem: String) {
        let listing = &mut self.crawled.listing;
        listing.problem.get_or_insert_with(|| format!("page {} cannot be read: {problem}", link.url));
        listing.failed.push((link.url.to_string(), problem));
    }

    fn take_page(&mut self, link: &Link, page: Page, follows: bool, program: &Program) -> Result<Vec<Url>> {
        let at = Url::parse(&page.validators.url).map(normal).unwrap_or_else(|_| link.url.clone());
        // A page that was found is known by where its redirects end.
        let name = if link.is_start { &link.url } else { &at };
        if !link.is_start && (site(&at) != link.site || !self.crawl.wants(within_site(&at))) {
            return Ok(Vec::new());
        }
        let claimed = page.content_type.as_deref().unwrap_or_default().trim_start().to_ascii_lowercase();
        if SHOWN.iter().any(|shown| claimed.starts_with(shown)) || !self.listed.insert(name.to_string()) {
            return Ok(Vec::new());
        }
        self.seen.insert(at.clone());
        let links = match follows.then(|| of_page(&page, program)) {
            Some(Ok(links)) => links,
            None => Vec::new(),
            Some(Err(error)) if !error.is_of_the_work() => return Err(error),
            Some(Err(error)) => {
                let problem = || format!("the links of page {} cannot be read: {error}", link.url);
                self.crawled.listing.problem.get_or_insert_with(problem);
                Vec::new()
            }
        };
        let (version, name) = (Version::of(&page), name.to_string());
        let item = Item { path: name.clone(), version: Some(version.text(&name)), size: page.bytes.len() };
        self.crawled.listing.items.push(item);
        if self.kept_bytes + page.bytes.len() <= KEPT {
            self.kept_bytes += page.bytes.len();
            self.crawled.kept.insert(name.clone(), found(page, &version, &name));
        }
        Ok(links)
    }
}
