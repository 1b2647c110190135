//! Markdown: taken as it is, titled by its first heading.

use super::Extracted;
use crate::ingest::chunk::Outline;

pub fn extract(text: String) -> Extracted {
    let title = Outline::read(&text).title().map(str::to_string);
    Extracted { text, title, markdown: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_heading_is_the_title() {
        assert_eq!(extract("x\n\n## A *b*\n\n# C".into()).title.as_deref(), Some("A b"));
        assert_eq!(extract("```\n# no\n```".into()).title, None);
    }
}
