//! Extracts Markdown: the text is kept as it is, its headings are marked, and the first one is the title.

use super::Extracted;
use crate::chunk::Outline;
use kb_types::Bounds;
use kb_types::error::Result;

/// A heading is the title only within this many bytes.
const BEGINNING: usize = 64 * 1024;

pub fn extract(text: String, bounds: &Bounds) -> Result<Extracted> {
    let outline = Outline::read(&text, bounds)?;
    let title = outline.title(BEGINNING).map(str::to_string);
    Ok(Extracted { text, title, marks: outline.marks })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn title(text: &str) -> Option<String> {
        extract(text.into(), &Bounds::none()).unwrap().title
    }

    #[test]
    fn the_first_heading_is_the_title() {
        assert_eq!(title("x\n\n## A *b*\n\n# C").as_deref(), Some("A b"));
        assert_eq!(title("```\n# no\n```"), None);
    }
}
