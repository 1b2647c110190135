//! The context of a chunk, such as "title > heading", which is put before its text when it is embedded and
//! indexed for keyword search.

use serde::{Deserialize, Serialize};

/// The most tokens of a context, including what joins it to the text.
pub const MAX_TOKENS: usize = 64;
/// The most tokens of the sentence that a chat model writes for a chunk, including what joins it to the text.
pub const MAX_SENTENCE_TOKENS: usize = 96;
/// The most tokens of the names of a table's columns, including what joins them to the text.
pub const MAX_HEADER_TOKENS: usize = 128;
/// The most characters of a title or heading in a context.
const MAX_PART: usize = 300;
const SEPARATOR: &str = " > ";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ContextPart {
    /// The document's title.
    Title,
    /// The headings above the chunk, outermost first.
    Heading,
}

/// The parts of a context, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContextTemplate(Vec<ContextPart>);

impl TryFrom<String> for ContextTemplate {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let problem = || {
            format!("\"{text}\" is not title, heading, or both with > between them, as in title > heading")
        };
        let mut parts = Vec::new();
        for name in text.split('>') {
            let part = match name.trim() {
                "title" => ContextPart::Title,
                "heading" => ContextPart::Heading,
                _ => return Err(problem()),
            };
            if parts.contains(&part) {
                return Err(problem());
            }
            parts.push(part);
        }
        Ok(ContextTemplate(parts))
    }
}

impl From<ContextTemplate> for String {
    fn from(template: ContextTemplate) -> String {
        let name = |part: &ContextPart| match part {
            ContextPart::Title => "title",
            ContextPart::Heading => "heading",
        };
        template.0.iter().map(name).collect::<Vec<_>>().join(SEPARATOR)
    }
}

/// The beginning of a title or heading, on one line and as long as it may be in a context. The rest of the
/// text is not read.
pub fn shortened(text: &str) -> String {
    let mut part = String::new();
    let mut left = MAX_PART;
    for word in text.split_whitespace() {
        if !part.is_empty() {
            part.push(' ');
            left -= 1;
        }
        let before = part.len();
        part.extend(word.chars().take(left));
        left -= part[before..].chars().count();
        if left == 0 {
            break;
        }
    }
    part.truncate(part.trim_end().len());
    part
}

impl ContextTemplate {
    /// The context of a chunk, given the document's title as [`shortened`] makes it. Parts that the chunk
    /// does not have are left out, and so is a first heading that repeats the title. None where nothing is
    /// left.
    pub fn text(&self, title: Option<&str>, headings: &[String]) -> Option<String> {
        let mut texts: Vec<String> = Vec::new();
        for part in &self.0 {
            let found: Vec<&str> = match part {
                ContextPart::Title => title.into_iter().collect(),
                ContextPart::Heading => headings.iter().map(String::as_str).collect(),
            };
            for text in found.into_iter().map(shortened).filter(|text| !text.is_empty()) {
                if texts.last() != Some(&text) {
                    texts.push(text);
                }
            }
        }
        (!texts.is_empty()).then(|| texts.join(SEPARATOR))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(text: &str) -> ContextTemplate {
        ContextTemplate::try_from(text.to_string()).unwrap()
    }

    #[test]
    fn a_missing_part_is_left_out_together_with_its_separator() {
        let headings = ["Leave".to_string(), " Annual\nleave ".to_string()];
        let both = template("title>heading");
        assert_eq!(both.text(Some("Handbook"), &headings).unwrap(), "Handbook > Leave > Annual leave");
        assert_eq!(both.text(Some("Leave"), &headings).unwrap(), "Leave > Annual leave");
        assert_eq!(both.text(None, &headings).unwrap(), "Leave > Annual leave");
        assert_eq!(both.text(Some(" "), &[]), None);
        assert_eq!(template("title").text(Some("Handbook"), &headings).unwrap(), "Handbook");
        assert_eq!(template("heading").text(Some(&"x".repeat(999)), &[]), None);
        assert_eq!(both.text(Some(&"é".repeat(999)), &[]).unwrap().chars().count(), MAX_PART);
    }

    #[test]
    fn only_known_parts_are_accepted_and_each_once() {
        assert_eq!(String::from(template(" heading >title ")), "heading > title");
        for wrong in ["", "title >", "uri", "title > title", "title heading", "{title}"] {
            assert!(ContextTemplate::try_from(wrong.to_string()).is_err(), "{wrong}");
        }
    }
}
