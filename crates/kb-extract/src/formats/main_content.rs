//! The article of a page in HTML, without what surrounds it, by legible, a port of Mozilla's Readability.js
//! (the reader view of Firefox).
//!
//! dom_smoothie, another port, depends on crates under the MPL, which deny.toml does not allow. Both find the
//! same articles in principle, because both follow the same rules.

use kb_text::parse::{self, ContentType};
use kb_types::extraction::Extraction;
use kb_types::{Bounds, Preprocess};
use legible::{Article, Options};
use serde_json::Value;

/// A page with more elements is kept whole. The library visits each of them several times.
const ELEMENTS: usize = 200_000;

/// Replaces the text of a page by its article, and says so in the metadata. A page without one stays whole.
pub fn keep(page: &mut Extraction) {
    let Some(article) = article(&page.text) else {
        page.metadata.insert("main_content".into(), Value::Bool(false));
        return;
    };
    page.title = Some(article.title.trim().to_string()).filter(|title| !title.is_empty());
    page.text = article.content.replace(['\r', '\0', '\u{feff}'], "");
    for (key, value) in
        [("author", article.byline), ("created", article.published_time), ("language", article.lang)]
    {
        if let Some(value) = value.filter(|value| !value.trim().is_empty()) {
            page.metadata.insert(key.into(), value.trim().into());
        }
    }
}

fn article(html: &str) -> Option<Article> {
    // The library takes time with the square of the depth. What is nested too deep for kb stays as it is.
    parse::extract(html, ContentType::Html, &Preprocess::default(), &Bounds::none()).ok()?;
    let options = Options::new().max_elems_to_parse(ELEMENTS);
    let article = legible::parse(html, None, Some(options)).ok()?;
    Some(article).filter(|article| !article.text_content.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use crate::extract;
    use kb_types::extraction::{Extraction, File, Reading};

    fn read(html: &str) -> Extraction {
        let reading = Reading { main_content: true, ..Reading::default() };
        extract(&File {
            name: Some("a.html".into()),
            bytes: html.into(),
            max_text: 1 << 20,
            reading,
            ..File::default()
        })
        .unwrap()
    }

    #[test]
    fn only_the_article_of_a_page_is_kept() {
        let article = "<p>Every employee has 25 days of leave in a year, which are agreed with the team, and which lapse in March.</p>".repeat(8);
        let links = "<li><a href='/x'>Another article of this site</a></li>".repeat(20);
        let page = format!(
            "<html lang=en><head><title>Leave | The site</title><meta name=author content='Ann Author'></head><body>
             <div class=menu><ul>{links}</ul></div><div class=sidebar><p>Buy now</p><ul>{links}</ul></div>
             <div id=content><h2>Days</h2>{article}</div><div class=comments><p>First!</p></div></body></html>"
        );
        let found = read(&page);
        assert!(found.text.contains("25 days of leave") && found.text_type == "text/html", "{}", found.text);
        for other in ["Another article", "Buy now", "First!"] {
            assert!(!found.text.contains(other), "{other}: {}", found.text);
        }
        assert!(found.title.as_deref().is_some_and(|title| title.contains("Leave")), "{:?}", found.title);
        assert_eq!(found.metadata["author"], "Ann Author");
    }

    #[test]
    fn a_page_without_an_article_stays_whole_and_says_so() {
        let page = "<title>T</title><ul><li><a href=x>One</a></ul>";
        let found = read(page);
        assert!(found.text.contains("One"), "{}", found.text);
        assert!(read("").text.is_empty());
    }

    #[test]
    fn a_page_that_is_nested_too_deep_stays_as_it_is() {
        let deep = format!("{}<p>{}", "<div>".repeat(20_000), "Some words of it. ".repeat(100));
        assert_eq!(read(&deep).text, deep);
    }
}
