//! The pages that an extraction service found in a file, as one text.

use super::{ContentType, extract};
use kb_types::error::Result;
use kb_types::extraction::Extraction;
use kb_types::extractor::{ServiceText, TextType};
use kb_types::{Bounds, Mark, Marked, Preprocess};

/// Joins pages to one text with a mark for each page that has a number. HTML becomes Markdown, whatever the
/// knowledge base says, because it is the service's and not the document's. Errors: those of
/// [`extract`](super::extract).
pub fn join(found: &ServiceText, bounds: &Bounds) -> Result<Extraction> {
    let mut joined = Extraction { text_type: text_type(found).name().into(), ..Extraction::default() };
    for page in &found.pages {
        let text = page.text.replace("\r\n", "\n").replace('\r', "\n").replace(['\0', '\u{feff}'], "");
        let text = match found.text_type {
            TextType::Html => {
                let extracted = extract(&text, ContentType::Html, &Preprocess::default(), bounds)?;
                joined.title = joined.title.or(extracted.title);
                extracted.text
            }
            TextType::Plain | TextType::Markdown => text,
        };
        let text = text.trim_matches('\n');
        if !joined.text.is_empty() && !text.is_empty() {
            joined.text.push_str("\n\n");
        }
        if let Some(number) = page.number.filter(|_| !text.is_empty()) {
            joined.marks.push(Marked { offset: joined.text.len(), mark: Mark::Page(number) });
        }
        joined.text.push_str(text);
        bounds.check_bytes(joined.text.len())?;
    }
    joined.title = joined.title.filter(|title| !title.trim().is_empty());
    if found.is_partial {
        joined.metadata.insert("partially_extracted".into(), true.into());
    }
    Ok(joined)
}

fn text_type(found: &ServiceText) -> ContentType {
    match found.text_type {
        TextType::Plain => ContentType::Plain,
        TextType::Markdown | TextType::Html => ContentType::Markdown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kb_types::extractor::PageText;

    fn joined(text_type: TextType, pages: &[(Option<u32>, &str)]) -> Extraction {
        let page =
            |(number, text): &(Option<u32>, &str)| PageText { number: *number, text: text.to_string() };
        let found = ServiceText { text_type, pages: pages.iter().map(page).collect(), is_partial: false };
        join(&found, &Bounds::none()).unwrap()
    }

    fn marks(extraction: &Extraction) -> Vec<(u32, &str)> {
        let page = |marked: &Marked| match marked.mark {
            Mark::Page(number) => {
                (number, extraction.text[marked.offset..].lines().next().unwrap_or_default())
            }
            _ => panic!("{marked:?}"),
        };
        extraction.marks.iter().map(page).collect()
    }

    #[test]
    fn pages_become_one_text_with_a_mark_for_each_that_has_text() {
        let read =
            joined(TextType::Markdown, &[(Some(1), "# A\r\none"), (Some(2), "\n"), (Some(3), "C\0\u{feff}")]);
        assert_eq!((read.text.as_str(), read.text_type.as_str()), ("# A\none\n\nC", "text/markdown"));
        assert_eq!(marks(&read), [(1, "# A"), (3, "C")]);
        let read = joined(TextType::Plain, &[(None, "# not a heading")]);
        assert_eq!((read.text.as_str(), read.text_type.as_str()), ("# not a heading", "text/plain"));
        assert!(read.marks.is_empty());
        assert_eq!(joined(TextType::Html, &[]).text, "");
    }

    #[test]
    fn html_becomes_markdown_page_by_page_and_has_its_title() {
        let head = "<html><head><title>Minutes</title></head><body>";
        let pages =
            [(None, head), (Some(1), "<h1>A &lt; B</h1><p>one</p></div>"), (Some(2), "<p>two</p></body>")];
        let read = joined(TextType::Html, &pages);
        assert_eq!(read.title.as_deref(), Some("Minutes"));
        assert_eq!(marks(&read)[1], (2, "two"));
        assert!(read.text.starts_with("# A") && read.text.contains("\n\none\n\ntwo"), "{}", read.text);
    }

    #[test]
    fn a_partial_text_says_so() {
        let found = ServiceText { is_partial: true, ..ServiceText::whole(TextType::Plain, "a".into()) };
        assert_eq!(join(&found, &Bounds::none()).unwrap().metadata["partially_extracted"], true);
    }
}
