//! Lists the pages of a sitemap (sitemaps.org), and of the sitemaps that it lists.

use super::addresses::site;
use super::fetching::{Fetching, Got};
use super::links::{Named, of_sitemap};
use crate::extract::Program;
use kb_types::error::Result;
use std::collections::{HashSet, VecDeque};
use url::Url;

/// The most bytes of a sitemap that the protocol allows, the most sitemaps of a source, and the most pages.
const MOST_BYTES: usize = 52_428_800;
const MOST_SITEMAPS: usize = 1_000;
const MOST_PAGES: usize = 1_000_000;

#[derive(Debug, Default)]
pub struct Sitemap {
    pub pages: Vec<Url>,
    pub failed: Vec<(String, String)>,
    pub problem: Option<String>,
}

/// Lists the pages. Only those of the site of the sitemap itself: another site has not asked for that.
pub fn list(start: &Url, fetching: &Fetching, program: &Program) -> Result<Sitemap> {
    let mut found = Sitemap::default();
    let mut seen = HashSet::from([start.clone()]);
    let mut waiting = VecDeque::from([start.clone()]);
    let fetching = Fetching { max_size: MOST_BYTES, ..*fetching };
    while let Some(address) = waiting.pop_front() {
        let Named { pages, sitemaps } = match read(&address, &fetching, program)? {
            Ok(named) => named,
            Err(problem) => {
                found.problem.get_or_insert(format!("sitemap {address} cannot be read: {problem}"));
                continue;
            }
        };
        for page in pages {
            match site(&page) == site(start) {
                true => found.pages.push(page),
                false => found.failed.push((page.into(), "it is not of the site of the sitemap".into())),
            }
        }
        for sitemap in sitemaps {
            if site(&sitemap) != site(start) {
                let problem = || format!("sitemap {sitemap} is not of the site of the sitemap that lists it");
                found.problem.get_or_insert_with(problem);
            } else if seen.insert(sitemap.clone()) {
                waiting.push_back(sitemap);
            }
        }
        if seen.len() > MOST_SITEMAPS || found.pages.len() + found.failed.len() > MOST_PAGES {
            let problem = || format!("it lists more than {MOST_PAGES} pages, or {MOST_SITEMAPS} sitemaps");
            found.problem.get_or_insert_with(problem);
            break;
        }
    }
    Ok(found)
}

fn read(address: &Url, fetching: &Fetching, program: &Program) -> Result<Result<Named, String>> {
    Ok(match fetching.one(address.as_str())? {
        Got::Page(page) => match of_sitemap(page, MOST_BYTES, program) {
            Ok(named) => Ok(named),
            Err(error) if !error.is_of_the_work() => return Err(error),
            Err(error) => Err(error.to_string()),
        },
        Got::Gone => Err("it does not exist".into()),
        Got::TooLarge(_) => Err(format!("it has more than {MOST_BYTES} bytes")),
        Got::Disallowed => Err("the robots.txt of its host does not allow it to be read".into()),
        Got::Failed(problem) => Err(problem),
        Got::Unchanged => Err("its host says that it has not changed, which was not asked".into()),
    })
}
