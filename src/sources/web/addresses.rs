//! Addresses of pages. Pure.

use std::collections::{HashSet, VecDeque};
use url::{Position, Url};

/// A page's address in the form by which it is known: without what names a place within the page.
pub fn normal(mut url: Url) -> Url {
    url.set_fragment(None);
    url
}

/// The address to which a link leads, if it is one of a page.
pub fn linked(base: &Url, link: &str) -> Option<Url> {
    let url = base.join(link).ok()?;
    let is_page =
        matches!(url.scheme(), "http" | "https") && url.username().is_empty() && url.password().is_none();
    is_page.then(|| normal(url))
}

/// Scheme, host and port.
pub fn site(url: &Url) -> &str {
    &url[..Position::BeforePath]
}

/// The path within the site, with what is asked for.
pub fn within_site(url: &Url) -> &str {
    &url[Position::BeforePath..Position::AfterQuery]
}

/// The name of the file that an address ends with, else that of its host.
pub fn file_name(address: &str) -> String {
    let Ok(url) = Url::parse(address) else { return address.to_string() };
    let last = url.path().rsplit('/').next().unwrap_or_default();
    if last.is_empty() { url.host_str().unwrap_or_default().to_string() } else { last.to_string() }
}

/// Each of these once, such that those of different sites alternate: so several sites are asked at a time.
pub fn alternating(urls: Vec<Url>) -> Vec<Url> {
    let mut seen = HashSet::new();
    let mut sites: Vec<(String, VecDeque<Url>)> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for url in urls {
        if !seen.insert(url.clone()) {
            continue;
        }
        let place = *places.entry(site(&url).to_string()).or_insert_with(|| {
            sites.push((site(&url).to_string(), VecDeque::new()));
            sites.len() - 1
        });
        sites[place].1.push_back(url);
    }
    let mut all = Vec::with_capacity(seen.len());
    while !sites.is_empty() {
        all.extend(sites.iter_mut().filter_map(|(_, urls)| urls.pop_front()));
        sites.retain(|(_, urls)| !urls.is_empty());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_pages_by_one_name_each() {
        let base = Url::parse("https://x.org/a/b?c").unwrap();
        let to = |link: &str| linked(&base, link).map(String::from);
        for (link, url) in [
            ("d#e", "https://x.org/a/d"),
            ("#e", "https://x.org/a/b?c"),
            ("../d e\"'<ä>?f g", "https://x.org/d%20e%22'%3C%C3%A4%3E?f%20g"),
            ("//Y.org:443", "https://y.org/"),
            ("?d", "https://x.org/a/b?d"),
        ] {
            assert_eq!(to(link).as_deref(), Some(url), "{link}");
        }
        for none in [
            "mailto:a@x.org",
            "javascript:x()",
            "file:///etc/passwd",
            "https://u:p@x.org/",
            "http://[",
            "data:,x",
        ] {
            assert_eq!(to(none), None, "{none}");
        }
    }

    #[test]
    fn sites_alternate_and_a_page_is_there_once() {
        let urls = ["http://a/1", "http://a/2", "http://a/1", "http://b/1", "http://a:8/1"];
        let all = alternating(urls.iter().map(|url| Url::parse(url).unwrap()).collect());
        let all: Vec<&str> = all.iter().map(Url::as_str).collect();
        assert_eq!(all, ["http://a/1", "http://b/1", "http://a:8/1", "http://a/2"]);
    }

    #[test]
    fn a_file_is_named_by_the_end_of_its_address() {
        assert_eq!(file_name("https://x.org/a/b.pdf?c=d/e.html"), "b.pdf");
        assert_eq!(file_name("https://x.org/a/"), "x.org");
    }
}
