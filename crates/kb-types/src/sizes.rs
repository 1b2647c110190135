//! Limits in bytes for what users store, apart from the text of documents (kb.max_document_size).

use crate::error::{Error, Result};

/// The title of a document.
pub const TITLE: usize = 4_000;
pub const URI: usize = 4_000;
/// Metadata as JSON.
pub const METADATA: usize = 1024 * 1024;
/// A heading in the locator of a chunk.
pub const HEADING: usize = 1_000;
/// The description of a knowledge base.
pub const DESCRIPTION: usize = 16_000;
/// Each of chunking, preprocess and retrieval, as JSON with all defaults.
pub const SETTINGS: usize = 16_000;
/// The definition of how rows of an attached table become documents, as JSON.
pub const SOURCE: usize = 64_000;
/// A question of an evaluation set, and its judgements and its filter as JSON.
pub const QUESTION: usize = 64_000;
pub const JUDGEMENTS: usize = 1024 * 1024;
pub const FILTER: usize = 64_000;
/// The content of a turn, and its tool calls, as JSON.
pub const TURN: usize = 4 * 1024 * 1024;
/// What a turn used at a provider, as JSON.
pub const USAGE: usize = 16_000;
/// A message or a stored error.
pub const MESSAGE: usize = 8_000;

/// Says what is wrong with a value of `size` bytes.
pub fn problem(size: usize, most: usize) -> Option<String> {
    (size > most).then(|| format!("it has {size} bytes; at most {most} are allowed"))
}

/// Returns an error where a field of an object is too long.
pub fn check(object: impl FnOnce() -> String, field: &'static str, size: usize, limit: usize) -> Result<()> {
    match size > limit {
        true => Err(Error::FieldTooLong { object: object(), field, size, limit }),
        false => Ok(()),
    }
}

/// The longest beginning of a text that has at most `most` bytes.
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
    fn an_error_says_which_field_is_too_long_and_by_how_much() {
        assert_eq!(check(String::new, "title", 4, 4), Ok(()));
        let error = check(|| "document \"d\"".into(), "title", 5, 4).unwrap_err();
        assert_eq!(error.sqlstate(), "54000");
        assert_eq!(error.to_string(), "title of document \"d\" is too long");
        assert_eq!(error.detail().as_deref(), Some("It has 5 bytes; at most 4 are allowed."));
        assert!(error.hint().is_some() && !error.is_transient());
    }
}
