//! Cuts a long text window by window, so that time and memory stay proportional to its length.
//!
//! text-splitter looks at every line break that is left, for every chunk: quadratic in the length.
//! What it makes of a place, however, depends only on what follows there within one chunk's size. So
//! each window is cut by itself, the chunks that its end could have changed are dropped, and the
//! next window begins where the first of them began: the result is that of one cut over the whole.

use super::headings::Outline;
use super::sizer::WindowSizer;
use super::{fixed, markdown, recursive};
use crate::error::Result;
use crate::model::{Chunking, Strategy};
use crate::tokenizer::Tokenizer;
use std::ops::Range;
use text_splitter::ChunkSizer;

/// Bytes a window at least.
const WINDOW: usize = 64 * 1024;
/// Chunks a window about, at four bytes a unit: so few are cut twice.
const CHUNKS: usize = 32;
/// Bytes within which the start of a Markdown block is looked for. A block that is longer is cut
/// inside, where a code block may read as text: worse cuts, but time stays in proportion.
pub const LONGEST_BLOCK: usize = 2 * WINDOW;

/// Blank lines (about) that end a stretch; see [`stretches`].
const GAP: usize = 32;

/// Byte ranges of the chunks of `region`.
pub fn split(
    text: &str,
    region: Range<usize>,
    chunking: &Chunking,
    tokenizer: &Tokenizer,
    outline: &Outline,
) -> Result<Vec<Range<usize>>> {
    let mut chunks = Vec::new();
    for stretch in stretches(text, region) {
        chunks.extend(split_stretch(text, stretch, chunking, tokenizer, outline)?);
    }
    Ok(chunks)
}

/// The parts between long runs of blank lines. With overlap text-splitter steps back over white
/// space, which has no size, and then goes through it a line at a time, each time at the cost of a
/// chunk: a run of some thousand blank lines would take minutes.
fn stretches(text: &str, region: Range<usize>) -> Vec<Range<usize>> {
    let mut stretches = Vec::new();
    let mut start = region.start;
    let mut gap: Option<(usize, usize)> = None;
    for (i, c) in text[region.clone()].char_indices() {
        let at = region.start + i;
        if c.is_whitespace() {
            let (from, breaks) = gap.unwrap_or((at, 0));
            gap = Some((from, breaks + usize::from(!matches!(c, ' ' | '\t' | '\u{a0}'))));
        } else if let Some((from, breaks)) = gap.take()
            && breaks >= GAP
        {
            stretches.push(start..from);
            start = at;
        }
    }
    let end = gap.filter(|(_, breaks)| *breaks >= GAP).map_or(region.end, |(from, _)| from);
    stretches.push(start..end);
    stretches
}

fn split_stretch(
    text: &str,
    region: Range<usize>,
    chunking: &Chunking,
    tokenizer: &Tokenizer,
    outline: &Outline,
) -> Result<Vec<Range<usize>>> {
    let usual = WINDOW.max(chunking.size.saturating_mul(4 * CHUNKS));
    let mut chunks = Vec::new();
    let mut at = region.start;
    let mut width = usual;
    while at < region.end {
        let end = text.floor_char_boundary(at.saturating_add(width).min(region.end));
        let window = &text[at..end];
        let sizer = WindowSizer::new(window, chunking.unit, tokenizer);
        let cut = match chunking.strategy {
            Strategy::Markdown => markdown::cut(window, chunking, &sizer)?,
            Strategy::Fixed => fixed::cut(window, chunking, &sizer),
            _ => recursive::cut(window, chunking, &sizer)?,
        };
        let whole = cut.into_iter().map(|r| at + r.start..at + r.end);
        if end == region.end {
            chunks.extend(whole);
            break;
        }
        let cut: Vec<Range<usize>> = whole.collect();
        // A chunk is certain when more than one chunk's size follows its start in the window.
        let certain = cut.iter().rposition(|r| sizer.size(&text[r.start..end]) > chunking.size);
        let begins_block = |i: &usize| outline.begins_block(cut[*i].start);
        let last = certain.map_or(0, |i| i + 1).min(cut.len().saturating_sub(1));
        // In Markdown a window begins where a block does: inside a fence all would read inside out.
        let kept = if chunking.strategy == Strategy::Markdown {
            let any = (width > usual && last > 0).then_some(last);
            (1..=last).rev().find(begins_block).or(any)
        } else {
            (last > 0).then_some(last)
        };
        match kept {
            Some(kept) => {
                at = cut[kept].start;
                chunks.extend(cut.into_iter().take(kept));
                width = usual;
            }
            // Nothing but white space so far.
            None if cut.is_empty() => at = end,
            None => width = width.saturating_mul(2),
        }
    }
    Ok(chunks)
}
