//! The words of texts, by a text search configuration.

use super::known_words;
pub use super::known_words::{InAdvance, in_advance};
use crate::pg::spi::{self, Arg, Row};
use kb_search::bm25::{Occurrences, Share};
use kb_types::error::{Error, Result};
use std::collections::BTreeMap;

/// A text search configuration that was looked up.
#[derive(Debug, Clone, Copy)]
pub struct Language(u32);

impl Language {
    /// Finds it by its name in pg_catalog, or by its qualified name.
    pub fn named(name: &str) -> Result<Language> {
        let oid = spi::read_one("SELECT $1::regconfig::oid::bigint", &[Arg::Text(name)], Row::only::<i64>)?;
        let oid = oid.and_then(|oid| u32::try_from(oid).ok());
        oid.map(Language).ok_or_else(|| Error::Internal(format!("no text search configuration {name}")))
    }

    /// The words of a question with their weights. A weight is the sum of those that each occurrence of the
    /// word is given.
    pub fn words(self, question: &str, weight: impl Fn(Share) -> f64) -> Result<BTreeMap<Vec<u8>, f64>> {
        let mut words: BTreeMap<Vec<u8>, f64> = BTreeMap::new();
        known_words::lexemes(self.0, question, |lexeme, share| {
            match (weight(share), words.get_mut(lexeme)) {
                (0.0, _) => {}
                (weight, Some(sum)) => *sum += weight,
                (weight, None) => drop(words.insert(lexeme.to_vec(), weight)),
            }
        })?;
        Ok(words)
    }

    /// As [`Language::terms`], from what was found `in_advance` where that still holds. Notes the language's
    /// name, without which nothing can be found in advance.
    pub fn terms_with(self, name: &str, text: &str, in_advance: Option<&InAdvance>) -> Result<Vec<u8>> {
        let known = in_advance.map(|known| known_words::complete(self.0, known)).transpose()?.flatten();
        let terms = known.map_or_else(|| self.terms(text), Ok)?;
        known_words::note_name(name, self.0);
        Ok(terms)
    }

    /// The same as kb.chunks.terms has it.
    pub fn terms(self, text: &str) -> Result<Vec<u8>> {
        let mut occurrences = Occurrences::default();
        known_words::lexemes(self.0, text, |lexeme, share| occurrences.add(lexeme, share))?;
        Ok(occurrences.encode())
    }
}
