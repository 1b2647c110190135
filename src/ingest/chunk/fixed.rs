//! Windows of a fixed number of tokens or characters, whatever the text says.

use crate::model::{Chunking, Unit};
use crate::tokenizer::Tokenizer;
use std::ops::Range;

/// Cuts a text; byte ranges, trimmed, none of white space only. Never inside a character.
pub fn cut(text: &str, chunking: &Chunking, tokenizer: &Tokenizer) -> Vec<Range<usize>> {
    // Where a window may begin: at each token or character.
    let starts: Vec<usize> = match chunking.unit {
        Unit::Tokens => tokenizer.spans(text).iter().map(|span| span.start).collect(),
        Unit::Characters => text.char_indices().map(|(i, _)| i).collect(),
    };
    let byte = |unit: usize| match unit {
        // What stands before the first token (a tokeniser may drop odd characters) is text too.
        0 => 0,
        unit => starts.get(unit).copied().unwrap_or(text.len()),
    };
    let mut ranges = Vec::new();
    let mut from = 0;
    loop {
        let mut to = (from + chunking.size).min(starts.len());
        if chunking.unit == Unit::Tokens {
            // Cut inside a word, a part can have more tokens by itself than it had in the whole.
            while to > from + 1 {
                let over = tokenizer.count(text[byte(from)..byte(to)].trim()).saturating_sub(chunking.size);
                if over == 0 {
                    break;
                }
                to = to.saturating_sub(over).max(from + 1);
            }
        }
        ranges.extend(super::trim(text, byte(from)..byte(to.max(from))));
        if to >= starts.len() {
            return ranges;
        }
        from = to.saturating_sub(chunking.overlap).max(from + 1);
    }
}
