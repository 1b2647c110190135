//! Strategy fixed: chunks of a fixed number of tokens or characters, regardless of sentences.

use super::sizer::WindowSizer;
use crate::chunk_settings::{Chunking, Unit};
use kb_types::error::Result;
use std::ops::Range;

/// The work counted for a chunk, in bytes.
const WINDOW: usize = 16;

/// Splits one window into byte ranges, which are trimmed, never blank, and never split a character.
pub fn cut(text: &str, chunking: &Chunking, sizer: &WindowSizer) -> Result<Vec<Range<usize>>> {
    // A chunk may begin at each token or character.
    let starts = sizer.starts();
    let byte = |unit: usize| starts.get(unit).copied().unwrap_or(text.len());
    let mut ranges = Vec::new();
    let mut from = 0;
    loop {
        let mut to = (from + chunking.size).min(starts.len());
        let cuts_word = inside_word(text, byte(from)) || inside_word(text, byte(to));
        if chunking.unit == Unit::Tokens && cuts_word {
            // A part that begins or ends inside a word can have more tokens by itself than in the text.
            let mut tries = 0;
            while to > from + 1 {
                let over = sizer.count(text[byte(from)..byte(to)].trim())?.saturating_sub(chunking.size);
                if over == 0 {
                    break;
                }
                // A few tries are usually enough. If not, the steps grow.
                to = to.saturating_sub(over << (tries / 4)).max(from + 1);
                tries = (tries + 1).min(100);
            }
        }
        ranges.extend(super::trim(text, byte(from)..byte(to.max(from))));
        sizer.bounds.spend(WINDOW)?;
        sizer.bounds.check_chunks(ranges.len())?;
        if to >= starts.len() {
            return Ok(ranges);
        }
        // A chunk that became shorter overlaps by at most half its length.
        from = to.saturating_sub(chunking.overlap).max(from + (to - from).div_ceil(2)).max(from + 1);
    }
}

fn inside_word(text: &str, at: usize) -> bool {
    let before = text[..at].chars().next_back();
    let after = text[at..].chars().next();
    before.is_some_and(|c| !c.is_whitespace()) && after.is_some_and(char::is_alphanumeric)
}
