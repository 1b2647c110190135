//! How large what users store may be, apart from the text of documents (kb.max_document_size). All in bytes.

use crate::error::{Error, Result};

/// Of a document.
pub const TITLE: usize = 4_000;
pub const URI: usize = 4_000;
/// As JSON.
pub const METADATA: usize = 1024 * 1024;
/// Of a heading, as chunks have it in their locators.
pub const HEADING: usize = 1_000;
/// Of a knowledge base.
pub const DESCRIPTION: usize = 16_000;
/// Of each of chunking, preprocess and retrieval, as JSON with all defaults.
pub const SETTINGS: usize = 16_000;
/// How rows of an attached table become documents, as JSON.
pub const SOURCE: usize = 64_000;
/// Of an evaluation set, and its judgements and filter as JSON.
pub const QUESTION: usize = 64_000;
pub const JUDGEMENTS: usize = 1024 * 1024;
pub const FILTER: usize = 64_000;
/// Of what a message or a stored error says.
pub const MESSAGE: usize = 8_000;

/// What is wrong with something of so many bytes.
pub fn problem(size: usize, most: usize) -> Option<String> {
    (size > most).then(|| format!("it has {size} bytes, at most {most} are taken"))
}

/// An error where a part of an object is too long.
pub fn check(object: impl FnOnce() -> String, field: &'static str, size: usize, limit: usize) -> Result<()> {
    match size > limit {
        true => Err(Error::FieldTooLong { object: object(), field, size, limit }),
        false => Ok(()),
    }
}

/// The beginning of a text that has at most so many bytes.
pub fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!((cut("né", 2), cut("né", 3), cut("né", 9)), ("n", "né", "né"));
    }

    #[test]
    fn the_error_says_what_is_too_long_and_by_how_much() {
        assert_eq!(check(String::new, "title", 4, 4), Ok(()));
        let error = check(|| "document \"d\"".into(), "title", 5, 4).unwrap_err();
        assert_eq!(error.sqlstate(), "54000");
        assert_eq!(error.to_string(), "title of document \"d\" is too long");
        assert_eq!(error.detail().as_deref(), Some("It has 5 bytes; at most 4 are taken."));
        assert!(error.hint().is_some() && !error.is_transient());
    }
}
