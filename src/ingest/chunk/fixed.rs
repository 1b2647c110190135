//! Windows of a fixed number of tokens or characters, whatever the text says.

use super::sizer::WindowSizer;
use crate::model::{Chunking, Unit};
use std::ops::Range;

/// Cuts one window; byte ranges within it, trimmed, none of white space only. Never inside a character.
pub fn cut(text: &str, chunking: &Chunking, sizer: &WindowSizer) -> Vec<Range<usize>> {
    // Where a chunk may begin: at each token or character.
    let starts = sizer.starts();
    let byte = |unit: usize| match unit {
        // What stands before the first token (a tokeniser may drop odd characters) is text too.
        0 => 0,
        unit => starts.get(unit).copied().unwrap_or(text.len()),
    };
    let mut ranges = Vec::new();
    let mut from = 0;
    loop {
        let mut to = (from + chunking.size).min(starts.len());
        let cuts_word = inside_word(text, byte(from)) || inside_word(text, byte(to));
        if chunking.unit == Unit::Tokens && cuts_word {
            // Cut inside a word, a part can have more tokens by itself than it had in the whole.
            while to > from + 1 {
                let over = sizer.count(text[byte(from)..byte(to)].trim()).saturating_sub(chunking.size);
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

fn inside_word(text: &str, at: usize) -> bool {
    let before = text[..at].chars().next_back();
    let after = text[at..].chars().next();
    before.is_some_and(|c| !c.is_whitespace()) && after.is_some_and(char::is_alphanumeric)
}
