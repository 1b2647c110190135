//! Gives chunks the context that is embedded, and found by its words, with their text.

use crate::error::Result;
use crate::model::chunk_context::{ContextTemplate, MAX_TOKENS};
use crate::model::{Bounds, Chunk};
use crate::tokenizer::Tokenizer;

/// Each chunk of a document gets what the template says, at most [`MAX_TOKENS`] with what joins it to the text.
pub fn give(
    chunks: &mut [Chunk],
    template: &ContextTemplate,
    title: Option<&str>,
    tokenizer: &Tokenizer,
    bounds: &Bounds,
) -> Result<()> {
    // Chunks under one heading have one context.
    let mut last: Option<(Option<String>, Option<String>)> = None;
    for chunk in chunks {
        let whole = template.text(title, &chunk.locator.headings);
        bounds.spend(whole.as_ref().map_or(0, String::len))?;
        chunk.context = match &last {
            Some((same, context)) if *same == whole => context.clone(),
            _ => {
                let context = whole.as_deref().map(|text| cut(text, tokenizer, bounds)).transpose()?;
                last = Some((whole, context.clone()));
                context
            }
        };
    }
    Ok(())
}

/// As much of the beginning as has few enough tokens.
fn cut(text: &str, tokenizer: &Tokenizer, bounds: &Bounds) -> Result<String> {
    let mut text = text;
    loop {
        let tokens = tokenizer.count(text, bounds)?;
        let most = MAX_TOKENS - JOINT;
        if tokens <= most || text.is_empty() {
            return Ok(text.trim_end().to_string());
        }
        let fewer = (text.len() * most / tokens).min(text.len() - 1);
        text = &text[..text.floor_char_boundary(fewer)];
    }
}

/// Tokens at most of the empty line between a context and its text.
const JOINT: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Locator, Span};

    #[test]
    fn a_long_context_is_cut_to_its_tokens() {
        let tokenizer = Tokenizer::tiktoken("cl100k_base").unwrap();
        let bounds = Bounds::none();
        let template = ContextTemplate::try_from("title > heading".to_string()).unwrap();
        let chunk = |headings: &[&str]| Chunk {
            content: "text".into(),
            context: None,
            span: Span { start: 0, end: 4 },
            token_count: 1,
            locator: Locator {
                headings: headings.iter().map(|h| h.to_string()).collect(),
                ..Locator::default()
            },
        };
        let long = "of the long title ".repeat(40);
        let mut chunks = vec![chunk(&[]), chunk(&["One"]), chunk(&["One"]), chunk(&[&long])];
        give(&mut chunks, &template, Some("Title"), &tokenizer, &bounds).unwrap();
        let contexts: Vec<&str> = chunks.iter().filter_map(|chunk| chunk.context.as_deref()).collect();
        assert_eq!(contexts[..3], ["Title", "Title > One", "Title > One"]);
        assert!(contexts[3].starts_with("Title > of the long"));
        assert!(tokenizer.count(contexts[3], &bounds).unwrap() <= MAX_TOKENS - JOINT);
        assert_eq!(chunks[1].whole(), "Title > One\n\ntext");
    }
}
