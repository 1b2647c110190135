//! Splits an extracted text into chunks. Each strategy has a file, and all give the same guarantees.
//!
//! A chunk is exactly a slice of the text, has no white space at its ends (Markdown keeps indentation), and
//! has at most `size` units, whatever the tokeniser does at its ends. Only the chunk of strategy none, a
//! single row of strategy rows, and a single character of more than `size` tokens can be larger.

mod containers;
mod definitions;
mod fixed;
mod markdown;
mod none;
mod outline;
mod recursive;
pub(super) mod rows;
mod semantic;
mod sentences;
mod size_limit;
mod sizer;
pub(super) mod windows;

#[cfg(test)]
pub(super) mod tests;

pub use outline::Outline;

use crate::chunk_settings::{Chunk, Chunking, Span, Strategy};
use crate::tokenizer::Tokenizer;
use kb_types::error::Result;
use kb_types::marks::Walk;
use kb_types::{Bounds, Marked};
use sentences::Sentence;
use std::ops::Range;

/// A future chunk: a byte range, and its number of tokens once they have been counted.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    pub range: Range<usize>,
    pub tokens: Option<usize>,
}

/// Splits `text` into chunks, whose locators come from `marks`. Strategy semantic needs vectors (see
/// [`semantic_chunk`]), so here it splits like strategy recursive. Errors: [`kb_types::error::Error::Limit`].
pub fn chunk(
    text: &str,
    chunking: &Chunking,
    tokenizer: &Tokenizer,
    marks: &[Marked],
    bounds: &Bounds,
) -> Result<Vec<Chunk>> {
    let outline = outline(text, chunking, marks, bounds)?;
    let pieces = split(text, 0..text.len(), chunking, tokenizer, &outline, bounds)?;
    finish(text, pieces, tokenizer, marks, bounds)
}

/// The sentences that strategy semantic compares.
pub struct Sentences<'a> {
    text: &'a str,
    sentences: Vec<Sentence>,
}

impl<'a> Sentences<'a> {
    /// Errors: [`kb_types::error::Error::Limit`].
    pub fn of(
        text: &'a str,
        chunking: &Chunking,
        tokenizer: &Tokenizer,
        bounds: &Bounds,
    ) -> Result<Sentences<'a>> {
        Ok(Sentences { text, sentences: sentences::sentences(text, chunking, tokenizer, bounds)? })
    }

    /// In order.
    pub fn texts(&self) -> Vec<&'a str> {
        self.sentences.iter().map(|sentence| &self.text[sentence.range.clone()]).collect()
    }
}

/// Splits a text by strategy semantic. `distances[i]` is the cosine distance (0 to 2) of sentence i from the
/// next one.
pub fn semantic_chunk(
    sentences: &Sentences,
    distances: &[f32],
    chunking: &Chunking,
    tokenizer: &Tokenizer,
    marks: &[Marked],
    bounds: &Bounds,
) -> Result<Vec<Chunk>> {
    let Sentences { text, sentences } = sentences;
    let pieces = semantic::pieces(text, sentences, distances, chunking, tokenizer, bounds)?;
    finish(text, pieces, tokenizer, marks, bounds)
}

/// The outline of `text`, if the strategy needs it.
pub(super) fn outline(text: &str, chunking: &Chunking, marks: &[Marked], bounds: &Bounds) -> Result<Outline> {
    if !matches!(chunking.strategy, Strategy::Recursive | Strategy::Markdown) {
        return Ok(Outline::default());
    }
    match Outline::of_definitions(marks) {
        Some(outline) => Ok(outline),
        None if chunking.strategy == Strategy::Markdown => Outline::read(text, bounds),
        None => Ok(Outline::default()),
    }
}

/// Splits the bytes `region` of `text` as if there were nothing around them. The pieces are in order, and
/// none lies inside another.
pub(super) fn split(
    text: &str,
    region: Range<usize>,
    chunking: &Chunking,
    tokenizer: &Tokenizer,
    outline: &Outline,
    bounds: &Bounds,
) -> Result<Vec<Piece>> {
    let pieces = match chunking.strategy {
        Strategy::None => {
            let whole = none::cut(&text[region.clone()]);
            let range = |r: Range<usize>| region.start + r.start..region.start + r.end;
            whole.into_iter().map(|r| Piece { range: range(r), tokens: None }).collect()
        }
        Strategy::Rows => rows::cut(text, region, chunking, tokenizer, bounds)?,
        _ if !outline.definitions.is_empty() => {
            definitions::split(text, region, chunking, tokenizer, outline, bounds)?
        }
        _ => windows::split(text, region, chunking, tokenizer, outline, bounds)?,
    };
    Ok(ordered(size_limit::enforce(text, pieces, chunking, tokenizer, bounds)?))
}

/// Sorts the pieces and drops those inside another one. With overlap, splitting an oversized chunk again can
/// give a piece that the next chunk contains, too.
pub(super) fn ordered(mut pieces: Vec<Piece>) -> Vec<Piece> {
    pieces.sort_by_key(|p| (p.range.start, std::cmp::Reverse(p.range.end)));
    let mut end = 0;
    pieces.retain(|p| {
        let further = p.range.end > end;
        end = end.max(p.range.end);
        further
    });
    pieces
}

/// Makes chunks of pieces: counts tokens where they are not counted yet, converts bytes to characters, and
/// adds locators.
pub(super) fn finish(
    text: &str,
    pieces: Vec<Piece>,
    tokenizer: &Tokenizer,
    marks: &[Marked],
    bounds: &Bounds,
) -> Result<Vec<Chunk>> {
    bounds.check_chunks(pieces.len())?;
    let mut starts = Characters::new(text);
    let mut ends = Characters::new(text);
    let mut walk = Walk::new(marks);
    let mut chunks = Vec::with_capacity(pieces.len());
    let mut bytes = 0usize;
    for piece in pieces {
        let content = text[piece.range.clone()].to_string();
        // A chunk may begin with indentation before a heading, so its first printing character locates it.
        let printing = piece.range.start + content.len() - content.trim_start().len();
        let locator = walk.locate(printing, piece.range.end);
        // Locators count, because a long heading is repeated in the locator of every chunk below it.
        let made = content.len() + locator.size();
        bytes = bytes.saturating_add(made);
        bounds.check_bytes(bytes)?;
        bounds.spend(made)?;
        chunks.push(Chunk {
            token_count: match piece.tokens {
                Some(tokens) => tokens,
                None => tokenizer.count(&content, bounds)?,
            },
            span: Span { start: starts.before(piece.range.start), end: ends.before(piece.range.end) },
            locator,
            content,
            context: None,
        });
    }
    Ok(chunks)
}

/// The range without white space at its ends. None where it is blank.
pub(super) fn trim(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    let part = &text[range.clone()];
    let start = range.start + part.len() - part.trim_start().len();
    let end = range.start + part.trim_end().len();
    (start < end).then_some(start..end)
}

/// Counts the characters before byte offsets. Offsets must not decrease, so that one pass over the text is
/// enough.
pub(super) struct Characters<'a> {
    text: &'a str,
    byte: usize,
    characters: usize,
}

impl<'a> Characters<'a> {
    pub fn new(text: &'a str) -> Self {
        Characters { text, byte: 0, characters: 0 }
    }

    /// The number of characters before byte `offset`.
    pub fn before(&mut self, offset: usize) -> usize {
        self.characters += self.text[self.byte..offset].chars().count();
        self.byte = offset;
        self.characters
    }

    /// The byte offset of character `index`, or None after the end. Indexes must not decrease, either.
    pub fn byte_of(&mut self, index: usize) -> Option<usize> {
        let ahead = index.checked_sub(self.characters)?;
        let rest = &self.text[self.byte..];
        let bytes = match rest.char_indices().nth(ahead) {
            Some((i, _)) => i,
            None if rest.chars().count() == ahead => rest.len(),
            None => return None,
        };
        self.byte += bytes;
        self.characters = index;
        Some(self.byte)
    }
}
