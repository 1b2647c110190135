//! Keeps every chunk within the size, counted as the model will read it.

use super::recursive::config;
use super::sizer::Counter;
use super::{Piece, trim};
use crate::chunk_settings::{Chunking, Strategy, Unit};
use crate::tokenizer::Tokenizer;
use kb_types::Bounds;
use kb_types::error::Result;
use std::ops::Range;
use text_splitter::{TextSplitter, TryChunkSizer};

/// Counts the tokens of each piece by itself, and splits the few pieces that have more tokens by themselves
/// than as a part of the text, because a word was split or a space was dropped. Only a single character can
/// remain larger than the size.
pub fn enforce(
    text: &str,
    given: Vec<Piece>,
    chunking: &Chunking,
    tokenizer: &Tokenizer,
    bounds: &Bounds,
) -> Result<Vec<Piece>> {
    let is_whole = matches!(chunking.strategy, Strategy::None | Strategy::Rows);
    if is_whole || chunking.unit == Unit::Characters {
        return Ok(given);
    }
    let mut pieces = Vec::with_capacity(given.len());
    for Piece { range, tokens } in given {
        let tokens = tokens.map_or_else(|| tokenizer.count(&text[range.clone()], bounds), Ok)?;
        if tokens <= chunking.size {
            pieces.push(Piece { range, tokens: Some(tokens) });
            continue;
        }
        // The parts have about the same length. Full parts would leave a last part of a word or two.
        let parts = tokens.div_ceil(chunking.size);
        let size = (tokens.div_ceil(parts) * 9 / 8).clamp(1, chunking.size);
        let splitter = TextSplitter::new(config(size, 0, Counter(tokenizer, bounds))?);
        for part in splitter.try_chunk_indices(&text[range.clone()]) {
            let (start, part) = part?;
            let start = range.start + start;
            halve(text, start..start + part.len(), chunking.size, Counter(tokenizer, bounds), &mut pieces)?;
        }
        bounds.check_chunks(pieces.len())?;
    }
    Ok(pieces)
}

/// The last resort, for tokenisers whose counts do not grow with the text: halves the text until it fits.
fn halve(
    text: &str,
    range: Range<usize>,
    size: usize,
    counter: Counter,
    pieces: &mut Vec<Piece>,
) -> Result<()> {
    let Some(range) = trim(text, range) else { return Ok(()) };
    let tokens = counter.try_size(&text[range.clone()])?;
    let middle = text.floor_char_boundary(range.start + range.len().div_ceil(2));
    // One character has no boundary between its ends.
    let middle = if middle == range.start { text.ceil_char_boundary(middle + 1) } else { middle };
    if tokens <= size || middle >= range.end {
        pieces.push(Piece { range, tokens: Some(tokens) });
        return Ok(());
    }
    halve(text, range.start..middle, size, counter, pieces)?;
    halve(text, middle..range.end, size, counter, pieces)
}
