//! kb._terms: the words of a text, in the form of kb.chunks.terms.

use crate::keyword::sql::words::Language;
use kb_types::error::Result;

/// `language` is the name of a text search configuration.
pub fn terms(content: &str, language: &str) -> Result<Vec<u8>> {
    Language::named(language)?.terms(content)
}
