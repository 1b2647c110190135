//! What a page or a sitemap names, found by kb-extract: both come from strangers.

use super::addresses::linked;
use super::fetching::Page;
use crate::extract::Program;
use flate2::read::GzDecoder;
use kb_types::error::{Error, Result};
use kb_types::extraction::{File, LINKS_OF_PAGE, LINKS_OF_SITEMAP};
use std::io::Read;
use url::Url;

/// The most bytes of links.
const MOST: usize = 64 << 20;

/// What a sitemap names.
#[derive(Debug, Default, PartialEq)]
pub struct Named {
    pub pages: Vec<Url>,
    pub sitemaps: Vec<Url>,
}

/// The pages to which a page leads; none if it is not HTML.
pub fn of_page(page: &Page, program: &Program) -> Result<Vec<Url>, Error> {
    let claimed =
        page.content_type.as_deref().map(|it| it.trim_start().to_ascii_lowercase()).unwrap_or_default();
    let is_claimed = ["text/html", "application/xhtml+xml"].iter().any(|html| claimed.starts_with(html));
    let is_like_html = claimed.is_empty() && page.bytes.trim_ascii_start().starts_with(b"<");
    if !is_claimed && !is_like_html {
        return Ok(Vec::new());
    }
    Ok(ask(page, LINKS_OF_PAGE, page.bytes.clone(), program)?.pages)
}

/// What a sitemap names. `most`: the most bytes of it, unpacked.
pub fn of_sitemap(mut page: Page, most: usize, program: &Program) -> Result<Named, Error> {
    let mut bytes = std::mem::take(&mut page.bytes);
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let broken = |problem| Error::Document { external_id: page.validators.url.clone(), problem };
        let mut unpacked = Vec::new();
        let read = GzDecoder::new(bytes.as_slice()).take(most as u64 + 1).read_to_end(&mut unpacked);
        read.map_err(|e| broken(format!("it cannot be unpacked: {e}")))?;
        if unpacked.len() > most {
            return Err(broken(format!("it has more than {most} bytes, unpacked")));
        }
        bytes = unpacked;
    }
    ask(&page, LINKS_OF_SITEMAP, bytes, program)
}

fn ask(page: &Page, content_type: &str, bytes: Vec<u8>, program: &Program) -> Result<Named, Error> {
    let address = &page.validators.url;
    let charset =
        page.content_type.as_deref().and_then(|claimed| claimed.split_once(';')).map(|(_, rest)| rest);
    let claimed = charset.map_or_else(|| content_type.to_string(), |rest| format!("{content_type};{rest}"));
    let file = File { name: None, content_type: Some(claimed), bytes, max_text: MOST, ..File::default() };
    let found = program.extract(file, address)?;
    // Its bytes may show that it is something else.
    let text = if found.content_type == content_type { found.text } else { String::new() };
    let own = Url::parse(address).map_err(|e| Error::Internal(format!("a page has no address: {e}")))?;
    Ok(read(&text, own))
}

/// Reads the lines that kb-extract writes.
fn read(text: &str, own: Url) -> Named {
    let mut named = Named::default();
    let mut base = own;
    for (kind, address) in text.lines().filter_map(|line| line.split_once(' ')) {
        let Some(url) = linked(&base, address) else { continue };
        match kind {
            "base" => base = url,
            "sitemap" => named.sitemaps.push(url),
            _ => named.pages.push(url),
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_relative_to_the_base_that_a_page_names() {
        let own = || Url::parse("https://x.org/a/b").unwrap();
        let pages =
            |text: &str| -> Vec<String> { read(text, own()).pages.into_iter().map(String::from).collect() };
        assert_eq!(pages("page c#d\npage mailto:x\n"), ["https://x.org/a/c"]);
        assert_eq!(pages("base /z/\npage c\n"), ["https://x.org/z/c"]);
        assert_eq!(read("sitemap c\n", own()).sitemaps.len(), 1);
    }
}
