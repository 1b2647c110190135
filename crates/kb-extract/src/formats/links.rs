//! Links: where a page leads to, and what a sitemap lists. A source of type url asks for them by content types
//! of their own, because sitemaps and pages that it follows come from strangers.
//!
//! The text has a line for each link, in the order of the file: what it is, a space, and the address as it is
//! written. A page has at most one `base`, and any number of `page`; a sitemap has `page` and `sitemap`.

use super::Format;
use super::xml::{Step, events};
use crate::charset;
use html5ever::TokenizerResult;
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{
    BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
};
use kb_types::extraction::{Extraction, Fault, File, LINKS_OF_PAGE, LINKS_OF_SITEMAP};
use std::cell::RefCell;

pub const PAGE: Format =
    Format { content_types: &[LINKS_OF_PAGE], extensions: &[], is_text: true, read: |file| read(file, page) };

pub const SITEMAP: Format = Format {
    content_types: &[LINKS_OF_SITEMAP],
    extensions: &[],
    is_text: true,
    read: |file| read(file, sitemap),
};

fn read(file: &File, links: fn(&str, &mut Links) -> Result<(), Fault>) -> Result<Extraction, Fault> {
    let decoded = charset::decode(file)?;
    let mut found = Links { text: String::new(), most: file.max_text, has_base: false };
    links(&decoded.text, &mut found)?;
    if found.text.len() > file.max_text {
        return Err(Fault::TooLarge(format!("it has more than {} bytes of links", file.max_text)));
    }
    Ok(Extraction { text_type: "text/plain".into(), text: found.text, ..Extraction::default() })
}

struct Links {
    text: String,
    most: usize,
    has_base: bool,
}

impl Links {
    fn add(&mut self, kind: &str, address: &str) {
        let address = address.trim();
        if address.is_empty() || address.contains(['\n', '\0']) || self.text.len() > self.most {
            return;
        }
        self.text.extend([kind, " ", address, "\n"]);
    }
}

/// The links of an HTML page. Only its tags are read, so that no tree is made of it.
fn page(text: &str, links: &mut Links) -> Result<(), Fault> {
    let tags = Tags { links: RefCell::new(links) };
    let tokenizer = Tokenizer::new(tags, TokenizerOpts::default());
    let input = BufferQueue::default();
    input.push_back(StrTendril::from(text));
    // Scripts are not run, and the text is UTF-8 whatever encoding it declares.
    while !matches!(tokenizer.feed(&input), TokenizerResult::Done) {}
    tokenizer.end();
    Ok(())
}

struct Tags<'a> {
    links: RefCell<&'a mut Links>,
}

impl TokenSink for Tags<'_> {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        let Token::TagToken(Tag { kind: TagKind::StartTag, name, attrs, .. }) = token else {
            return TokenSinkResult::Continue;
        };
        let href = attrs.iter().find(|attribute| &*attribute.name.local == "href");
        let mut links = self.links.borrow_mut();
        match (&*name, href) {
            ("a" | "area", Some(href)) => links.add("page", &href.value),
            ("base", Some(href)) if !links.has_base => {
                links.has_base = true;
                links.add("base", &href.value);
            }
            // What looks like tags in these are none.
            ("script", _) => return TokenSinkResult::RawData(RawKind::ScriptData),
            ("style" | "xmp" | "iframe" | "noembed" | "noframes", _) => {
                return TokenSinkResult::RawData(RawKind::Rawtext);
            }
            ("title" | "textarea", _) => return TokenSinkResult::RawData(RawKind::Rcdata),
            _ => {}
        }
        TokenSinkResult::Continue
    }
}

/// The pages and sitemaps that a sitemap lists (sitemaps.org): XML, or an address on each line.
fn sitemap(text: &str, links: &mut Links) -> Result<(), Fault> {
    if !text.trim_start().starts_with('<') {
        text.lines().filter(|line| line.trim().starts_with("http")).for_each(|line| links.add("page", line));
        return Ok(());
    }
    let mut around: Vec<String> = Vec::new();
    let mut address = String::new();
    events(text, |step| {
        match step {
            Step::Start(start) => {
                around.push(start.local_name().as_ref().to_string());
                address.clear();
            }
            Step::Text(text) if around.last().is_some_and(|name| name == "loc") => address.push_str(text),
            Step::Text(_) => {}
            Step::End => {
                let is_address = around.pop().is_some_and(|name| name == "loc");
                // Images and videos have a loc, too.
                match around.last().map(String::as_str) {
                    Some("url") if is_address => links.add("page", &address),
                    Some("sitemap") if is_address => links.add("sitemap", &address),
                    _ => {}
                }
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(content_type: &str, text: &str) -> Result<String, Fault> {
        let content_type = Some(content_type.to_string());
        let file = File { bytes: text.into(), content_type, max_text: 10_000, ..File::default() };
        crate::extract(&file).map(|extraction| extraction.text)
    }

    #[test]
    fn a_page_leads_to_what_its_links_name() {
        let page = "<html><base href='/b/'><base href='/c/'><title><a href=no></title><script>'<a href=no>'</script>
            <!-- <a href=no> --><A HREF=\"x?a=1&amp;b=2#f\">x</A><a name=y><map><area href=' z '></map><a href=\"\">";
        assert_eq!(links(LINKS_OF_PAGE, page).unwrap(), "base /b/\npage x?a=1&b=2#f\npage z\n");
        assert_eq!(links("application/x-kb-links; charset=latin1", "no links").unwrap(), "");
    }

    #[test]
    fn a_sitemap_lists_pages_or_sitemaps() {
        let pages = "<?xml version='1.0'?><urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' xmlns:i='i'>
            <url><loc> https://x.org/a?b=1&amp;c=2 </loc><lastmod>2026</lastmod><i:image><i:loc>no</i:loc></i:image></url>
            <url><loc><![CDATA[https://x.org/b]]></loc></url></urlset>";
        let listed = links(LINKS_OF_SITEMAP, pages).unwrap();
        assert_eq!(listed, "page https://x.org/a?b=1&c=2\npage https://x.org/b\n");
        let index = "<sitemapindex><sitemap><loc>https://x.org/1.xml.gz</loc></sitemap></sitemapindex>";
        assert_eq!(links(LINKS_OF_SITEMAP, index).unwrap(), "sitemap https://x.org/1.xml.gz\n");
        assert_eq!(links(LINKS_OF_SITEMAP, "https://x.org/a\n\nx\n").unwrap(), "page https://x.org/a\n");
        assert!(matches!(links(LINKS_OF_SITEMAP, "<urlset><url>"), Err(Fault::Broken(_))));
        let many = format!("<urlset>{}</urlset>", "<url><loc>https://x.org/a</loc></url>".repeat(1000));
        assert!(matches!(links(LINKS_OF_SITEMAP, &many), Err(Fault::TooLarge(_))));
    }
}
