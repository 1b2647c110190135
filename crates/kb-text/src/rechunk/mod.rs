//! Splits an edited text again only around the edit, so that the other chunks keep their content.

use super::chunk::windows::LONGEST_BLOCK;
use super::chunk::{self, Characters, Outline, Piece};
use crate::chunk_settings::{Chunk, Chunking, Strategy, Unit};
use crate::tokenizer::Tokenizer;
use kb_types::error::Result;
use kb_types::{Bounds, Marked};
use std::ops::Range;

#[cfg(test)]
mod tests;

/// A chunk of the previous text of the document, made under the same settings. `start` and `end` are
/// character offsets in that text.
#[derive(Debug, Clone, PartialEq)]
pub struct PreviousChunk {
    pub content: String,
    pub start: usize,
    pub end: usize,
    pub token_count: usize,
}

/// Splits `text`, whose marks are given, and keeps the chunks of `previous` (in order of their starts) before
/// and after the edit. If `previous` belongs to another text, the result is still correct, but all chunks are
/// new.
pub fn rechunk(
    text: &str,
    chunking: &Chunking,
    tokenizer: &Tokenizer,
    marks: &[Marked],
    previous: &[PreviousChunk],
    bounds: &Bounds,
) -> Result<Vec<Chunk>> {
    if previous.is_empty() || chunking.strategy == Strategy::None {
        return chunk::chunk(text, chunking, tokenizer, marks, bounds);
    }
    // The search, from both ends, for chunks that are still in their places.
    bounds.spend(2 * text.len())?;
    let outline = chunk::outline(text, chunking, marks, bounds)?;
    let kept = |range: &Range<usize>, of: &PreviousChunk| Piece {
        range: range.clone(),
        tokens: Some(of.token_count),
    };
    let rows = match chunking.strategy {
        Strategy::Rows => Some(RowEnds::of(text, bounds)?),
        _ => None,
    };
    let leading = leading(text, previous, rows.as_ref());
    let covered = leading.last().map_or(0, |r| r.end);
    let mut pieces: Vec<Piece> = leading.iter().zip(previous).map(|(r, c)| kept(r, c)).collect();
    if leading.len() < previous.len() || !blank(text, covered..text.len()) {
        let trailing = trailing(text, previous, chunking, &leading, rows.as_ref());
        // Split from the start of the last leading chunk, because the text after it may now fit into it.
        // Where it does not, splitting from the same start makes the same chunk.
        let first = restart(&leading, &outline);
        let from = leading.get(first).map_or(0, |r| r.start);
        pieces.truncate(first);
        pieces.extend(chunk::split(text, from..trailing.region_end, chunking, tokenizer, &outline, bounds)?);
        let behind = &previous[previous.len() - trailing.ranges.len()..];
        pieces.extend(trailing.ranges.iter().zip(behind).map(|(r, c)| kept(r, c)));
    }
    let pieces = chunk::ordered(pieces);
    chunk::finish(text, pieces, tokenizer, marks, bounds)
}

/// The leading chunk to split from: the last one, or in Markdown the last one that begins a block, because
/// inside a fence code would parse as text and text as code. In source code the last one that begins a
/// definition, because the parts of a long definition are not joined to what follows.
fn restart(leading: &[Range<usize>], outline: &Outline) -> usize {
    let last = leading.len().saturating_sub(1);
    if !outline.has_blocks() {
        return last;
    }
    let near = |i: &usize| leading[last].start - leading[*i].start < LONGEST_BLOCK;
    let begins_block = |i: &usize| outline.begins_block(leading[*i].start);
    (0..leading.len()).rev().take_while(near).find(begins_block).unwrap_or(last)
}

/// The byte ranges of the longest run of chunks from the first on that are still in their places.
fn leading(text: &str, previous: &[PreviousChunk], rows: Option<&RowEnds>) -> Vec<Range<usize>> {
    let mut characters = Characters::new(text);
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for chunk in previous {
        let covered = ranges.last().map_or(0, |r| r.end);
        let Some(start) = characters.byte_of(chunk.start) else { break };
        let range = start..start + chunk.content.len();
        // Text that was inserted between two matching chunks belongs to neither.
        let is_same = text.get(range.clone()) == Some(&chunk.content);
        if !is_same || !blank(text, covered..start) || rows.is_some_and(|rows| !rows.holds(&range)) {
            break;
        }
        ranges.push(range);
    }
    ranges
}

/// Where the rows of a table begin and end. A chunk whose text is the same may now be a part of a row,
/// because an edit removed a line break or added a quotation mark.
struct RowEnds {
    starts: Vec<usize>,
    ends: Vec<usize>,
}

impl RowEnds {
    fn of(text: &str, bounds: &Bounds) -> Result<RowEnds> {
        bounds.spend(text.len())?;
        let (starts, ends) = chunk::rows::ranges(text).map(|row| (row.start, row.end)).unzip();
        Ok(RowEnds { starts, ends })
    }

    /// Whether a range has whole rows.
    fn holds(&self, range: &Range<usize>) -> bool {
        self.starts.binary_search(&range.start).is_ok() && self.ends.binary_search(&range.end).is_ok()
    }
}

struct Trailing {
    /// The byte ranges of the run's chunks in the new text, in order.
    ranges: Vec<Range<usize>>,
    /// Where splitting again ends.
    region_end: usize,
}

/// The longest run of chunks, up to the last one, that are as far from the end as before and do not overlap
/// the leading ones. Distances are measured from the end of the last chunk, which is the end of the text
/// without trailing white space, because the length of the previous text is not known.
fn trailing(
    text: &str,
    previous: &[PreviousChunk],
    chunking: &Chunking,
    leading: &[Range<usize>],
    rows: Option<&RowEnds>,
) -> Trailing {
    let mut back = Backwards { text: text.trim_end(), characters: 0 };
    let last_end = previous.last().map_or(0, |c| c.end);
    let mut end_of = |chunk: &PreviousChunk| back.byte_of(last_end.checked_sub(chunk.end)?);
    let covered = leading.last().map_or(0, |r| r.end);
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let mut before = None;
    // The first chunk of a table has one more row than others may have, unless it is the first.
    let first = usize::from(chunking.strategy == Strategy::Rows).max(leading.len());
    for chunk in previous[first..].iter().rev() {
        let end = end_of(chunk);
        let open = ranges.last().map_or(text.len(), |r| r.start);
        let range = end.and_then(|end| Some(end.checked_sub(chunk.content.len())?..end));
        match range {
            // A run that overlaps the leading one would contain the same text twice.
            Some(range)
                if range.start >= covered
                    && text.get(range.clone()) == Some(&chunk.content)
                    && blank(text, range.end..open)
                    && rows.is_none_or(|rows| rows.holds(&range)) =>
            {
                ranges.push(range)
            }
            _ => {
                before = end;
                break;
            }
        }
    }
    if ranges.len() == previous.len() - leading.len() {
        // Nothing was between the runs, so the chunk before is the last leading one.
        before = leading.len().checked_sub(1).and_then(|i| end_of(&previous[i]));
    }
    ranges.reverse();
    // A small chunk after the edit is most likely a remainder of an earlier edit, or the whole of a short
    // text. It is split again, too, so that remainders do not add up and a short text stays one chunk.
    if let [first, rest @ ..] = &ranges[..]
        && units(&previous[previous.len() - ranges.len()], chunking) * 4 < chunking.size
    {
        let region_end = rest.first().map_or(text.len(), |second| second.start.max(first.end));
        ranges.remove(0);
        return Trailing { ranges, region_end };
    }
    let start = ranges.first().map_or(text.len(), |r| r.start);
    // With overlap the chunk before the run ended inside it, and should do so again. That place is after the
    // edit if the run's first chunk is.
    let region_end = match before {
        Some(end) if !ranges.is_empty() => end.max(start),
        _ => start,
    };
    Trailing { ranges, region_end }
}

fn units(chunk: &PreviousChunk, chunking: &Chunking) -> usize {
    match chunking.unit {
        Unit::Tokens => chunk.token_count,
        Unit::Characters => chunk.end.saturating_sub(chunk.start),
        Unit::Rows => chunk::rows::count(&chunk.content),
    }
}

/// Whether the range contains only white space. An empty or inverted range contains nothing.
fn blank(text: &str, range: Range<usize>) -> bool {
    text.get(range).is_none_or(|between| between.trim().is_empty())
}

/// Finds byte offsets by the number of characters from the end. Distances must not decrease.
struct Backwards<'a> {
    /// The text before the place of the last distance.
    text: &'a str,
    characters: usize,
}

impl Backwards<'_> {
    fn byte_of(&mut self, distance: usize) -> Option<usize> {
        if let Some(more) = distance.checked_sub(self.characters + 1) {
            let (byte, _) = self.text.char_indices().rev().nth(more)?;
            self.text = &self.text[..byte];
        } else if distance < self.characters {
            return None;
        }
        self.characters = distance;
        Some(self.text.len())
    }
}
