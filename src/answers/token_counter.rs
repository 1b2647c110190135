//! Counts the tokens of a prompt.

use crate::pg::report;
use kb_text::tokenizer::{Tokenizer, is_tiktoken};
use kb_types::conversation::estimated_tokens;
use kb_types::error::Result;
use kb_types::{Bounds, Limits, Llm};
use std::sync::Arc;

/// Counts as the chat model does, or, where its tokeniser is not known, a token for four characters.
pub struct TokenCounter(Option<Arc<Tokenizer>>);

impl TokenCounter {
    pub fn of(llm: &Llm) -> Result<TokenCounter> {
        let is_known = llm.provider == "openai" && is_tiktoken(&llm.model);
        Ok(TokenCounter(is_known.then(|| Tokenizer::of_openai(&llm.model)).transpose()?))
    }

    pub fn count(&self, text: &str) -> Result<usize> {
        let Some(tokenizer) = &self.0 else { return Ok(estimated_tokens(&[text], 0)) };
        let bounds = Bounds::begin(Limits { interrupt: report::check_interrupts, ..Limits::none() });
        tokenizer.count(text, &bounds)
    }

    /// The tokens of each text.
    pub fn counts(&self, texts: &[String]) -> Result<Vec<usize>> {
        texts.iter().map(|text| self.count(text)).collect()
    }

    /// The tokens of all texts together.
    pub fn total<'a>(&self, texts: impl IntoIterator<Item = &'a str>) -> Result<usize> {
        texts.into_iter().try_fold(0, |total: usize, text| Ok(total.saturating_add(self.count(text)?)))
    }
}
