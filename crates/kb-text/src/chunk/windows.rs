//! Splits a long text window by window, so that time and memory stay proportional to its length.
//!
//! For every chunk, text-splitter examines every line break in the rest of the text, which is quadratic in
//! the length. What it does at a place, however, depends only on the text that follows within the size of one
//! chunk. So each window is split by itself, the chunks that its end could have changed are dropped, and the
//! next window begins where the first of them began. The result is the same as for the whole text at once.

use super::containers::shallow;
use super::outline::Outline;
use super::recursive::Cut;
use super::sizer::WindowSizer;
use super::{Piece, fixed, markdown, recursive};
use crate::chunk_settings::{Chunking, Strategy};
use crate::tokenizer::Tokenizer;
use kb_types::Bounds;
use kb_types::error::Result;
use std::borrow::Cow;
use std::ops::Range;

/// The fewest bytes of a window. The splitter examines all line breaks of a window for each chunk, so that
/// small chunks need small windows.
const WINDOW: usize = 1024;
/// About how many chunks a window has, at four bytes a unit. That is enough that few chunks are made twice.
const CHUNKS: usize = 12;
/// The most bytes of a window, unless two chunks have more. The Markdown parser needs about 112 bytes of
/// memory for each byte.
const LONGEST_WINDOW: usize = 1024 * 1024;
/// The start of a Markdown block is looked for within this many bytes, but within at least two and at most
/// four usual windows, and never beyond the longest window. A longer block is split inside, where code may
/// parse as text. The chunks are worse then, but time stays proportional.
pub const LONGEST_BLOCK: usize = 128 * 1024;

/// About how many blank lines, or characters of white space, end a stretch; see [`stretches`].
const GAP: usize = 32;
const LONG_GAP: usize = 512;

/// The chunks of `region`, with their numbers of tokens where these are known.
pub fn split(
    text: &str,
    region: Range<usize>,
    chunking: &Chunking,
    tokenizer: &Tokenizer,
    outline: &Outline,
    bounds: &Bounds,
) -> Result<Vec<Piece>> {
    let shown = match chunking.strategy {
        Strategy::Markdown => shallow(text),
        _ => Cow::Borrowed(text),
    };
    let as_it_is = matches!(shown, Cow::Borrowed(_));
    let cutter = Cutter { text: &shown, as_it_is, chunking, tokenizer, outline, bounds };
    let mut chunks = Vec::new();
    for stretch in stretches(text, region) {
        cutter.cut(stretch, &mut chunks)?;
    }
    Ok(chunks)
}

/// The parts between long runs of blank lines. With overlap, text-splitter steps back over white space, which
/// has no size, and then forward over it one line at a time, each at the cost of a chunk. A run of a few
/// thousand blank lines would take minutes.
fn stretches(text: &str, region: Range<usize>) -> Vec<Range<usize>> {
    let mut stretches = Vec::new();
    let mut start = region.start;
    // Where the white space began, and about how many blank lines it has had so far.
    let mut gap: Option<(usize, usize)> = None;
    let is_long = |at: usize| move |(from, breaks): &(usize, usize)| *breaks >= GAP || at - from >= LONG_GAP;
    for (i, c) in text[region.clone()].char_indices() {
        let at = region.start + i;
        if c.is_whitespace() {
            let (from, breaks) = gap.unwrap_or((at, 0));
            gap = Some((from, breaks + usize::from(!matches!(c, ' ' | '\t' | '\u{a0}'))));
        } else if let Some((from, _)) = gap.take().filter(is_long(at)) {
            stretches.push(start..from);
            start = at;
        }
    }
    let end = gap.filter(is_long(region.end)).map_or(region.end, |(from, _)| from);
    stretches.push(start..end);
    stretches
}

/// What is needed to split a region.
struct Cutter<'a> {
    text: &'a str,
    /// Whether the text is the one that chunks are slices of.
    as_it_is: bool,
    chunking: &'a Chunking,
    tokenizer: &'a Tokenizer,
    outline: &'a Outline,
    bounds: &'a Bounds,
}

impl Cutter<'_> {
    /// Adds the chunks of a region.
    fn cut(&self, region: Range<usize>, chunks: &mut Vec<Piece>) -> Result<()> {
        let (text, chunking) = (self.text, self.chunking);
        let longest = LONGEST_WINDOW.max(chunking.size.saturating_mul(2));
        let usual = WINDOW.max(chunking.size.saturating_mul(4 * CHUNKS)).min(longest);
        let long = usual.saturating_mul(4).min(LONGEST_BLOCK.max(2 * usual)).min(longest);
        let mut at = region.start;
        let mut width = usual;
        while at < region.end {
            let end = text.floor_char_boundary(at.saturating_add(width).min(region.end));
            let window = &text[at..end];
            let sizer = WindowSizer::new(window, chunking.unit, self.tokenizer, self.bounds)?;
            let Cut { ranges, rest } = match chunking.strategy {
                Strategy::Markdown => markdown::cut(window, chunking, &sizer)?,
                Strategy::Fixed => Cut { ranges: fixed::cut(window, chunking, &sizer)?, rest: None },
                _ => recursive::cut(window, chunking, &sizer)?,
            };
            let piece = |range: Range<usize>| Piece {
                tokens: self.as_it_is.then(|| sizer.known_count(&range)).flatten(),
                range: at + range.start..at + range.end,
            };
            let cut: Vec<Piece> = ranges.into_iter().map(piece).collect();
            self.bounds.check_chunks(chunks.len() + cut.len())?;
            if let Some(rest) = rest {
                chunks.extend(cut);
                at += rest;
                width = usual;
                continue;
            }
            if end == region.end {
                chunks.extend(cut);
                return Ok(());
            }
            match self.kept(&cut, &sizer, end, width >= long)? {
                Some(kept) => {
                    at = cut[kept].range.start;
                    chunks.extend(cut.into_iter().take(kept));
                    width = usual;
                }
                // Only white space so far.
                None if cut.is_empty() => at = end,
                // The longest window has no certain chunk only where a unit has two bytes or more.
                None if width < longest => width = width.saturating_mul(2).min(longest),
                None => width = width.saturating_mul(2),
            }
        }
        Ok(())
    }

    /// How many chunks of a window its end could not have changed, if any. The next window begins where they
    /// end. In Markdown that may be inside a block only if the window is `long`.
    fn kept(&self, cut: &[Piece], sizer: &WindowSizer, end: usize, long: bool) -> Result<Option<usize>> {
        // A chunk is certain if more than one chunk's size follows its start in the window.
        let mut certain = 0;
        for (i, piece) in cut.iter().enumerate().rev() {
            if sizer.size(&self.text[piece.range.start..end])? > self.chunking.size {
                certain = i + 1;
                break;
            }
        }
        let last = certain.min(cut.len().saturating_sub(1));
        // In Markdown a window begins where a block does, because inside a fence code would parse as text and
        // text as code.
        if self.chunking.strategy == Strategy::Markdown {
            let begins_block = |i: &usize| self.outline.begins_block(cut[*i].range.start);
            // Otherwise it begins where a line does. Link definitions that begin inside a line would parse as
            // one long paragraph.
            let begins_line = |i: &usize| self.text[..cut[*i].range.start].ends_with('\n');
            let any =
                (long && last > 0).then(|| (last.div_ceil(2)..=last).rev().find(begins_line).unwrap_or(last));
            return Ok((1..=last).rev().find(begins_block).or(any));
        }
        Ok((last > 0).then_some(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk_settings::Unit;

    #[test]
    fn inside_a_block_of_markdown_a_window_begins_at_a_line() {
        let text = "[a]: https://a.example/b 'c d'\n".repeat(400);
        let chunking = Chunking {
            strategy: Strategy::Markdown,
            size: 1,
            overlap: 0,
            unit: Unit::Tokens,
            tokenizer: None,
            percentile: None,
            context: None,
            context_llm: None,
        };
        let (tokenizer, bounds) = (Tokenizer::words(), Bounds::none());
        let outline = Outline::read(&text, &bounds).unwrap();
        let cutter = Cutter {
            text: &text,
            as_it_is: true,
            chunking: &chunking,
            tokenizer: &tokenizer,
            outline: &outline,
            bounds: &bounds,
        };
        let end = 8 * WINDOW;
        let sizer = WindowSizer::new(&text[..end], Unit::Tokens, &tokenizer, &bounds).unwrap();
        let cut = markdown::cut(&text[..end], &chunking, &sizer).unwrap().ranges;
        let cut: Vec<Piece> = cut.into_iter().map(|range| Piece { range, tokens: None }).collect();
        let kept = cutter.kept(&cut, &sizer, end, true).unwrap().unwrap();
        let start = cut[kept].range.start;
        assert!(kept > cut.len() / 3 && text[..start].ends_with('\n'), "{:?}", &text[start - 9..start]);
    }
}
