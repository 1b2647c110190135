//! Strategy rows: whole rows of a table in CSV.
//!
//! A row ends at a line break outside quotation marks, which a value has at its beginning and end (RFC 4180).
//! The first row of a text names the columns. It stays with the row after it, and does not count.

use super::{Piece, trim};
use crate::chunk_settings::{Chunking, Unit};
use crate::tokenizer::Tokenizer;
use kb_types::Bounds;
use kb_types::error::Result;
use std::collections::VecDeque;
use std::ops::Range;

/// The work counted for a row, in bytes.
const ROW: usize = 16;

/// The rows of a part of a text, without white space around them. Blank rows are none.
struct Rows<'a> {
    text: &'a str,
    at: usize,
    end: usize,
    /// Whether line breaks in quotation marks belong to a row. No longer after a quotation that does not end:
    /// each of them would be looked through up to the end of the text.
    has_quotations: bool,
}

impl<'a> Rows<'a> {
    fn of(text: &'a str, region: Range<usize>) -> Rows<'a> {
        Rows { text, at: region.start, end: region.end, has_quotations: true }
    }

    /// Where the row that begins here ends: behind its line break.
    fn row_end(&mut self) -> usize {
        let rest = &self.text[self.at..self.end];
        if self.has_quotations {
            let mut is_quoted = false;
            // Whether a value begins here, before which white space may come.
            let mut begins = true;
            let mut has_ended = false;
            for (at, c) in rest.char_indices() {
                let was_quoted = is_quoted;
                match c {
                    '"' if is_quoted => is_quoted = false,
                    // A mark within a value is one of the text, unless the one before it just ended.
                    '"' => is_quoted = begins || has_ended,
                    '\n' if !is_quoted => return self.at + at + 1,
                    _ => {}
                }
                has_ended = was_quoted && !is_quoted;
                begins = matches!(c, ',' | ';' | '\t' | '|' | '\n') || begins && c.is_whitespace();
            }
            if !is_quoted {
                return self.end;
            }
            self.has_quotations = false;
        }
        rest.find('\n').map_or(self.end, |end| self.at + end + 1)
    }
}

impl Iterator for Rows<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        while self.at < self.end {
            let end = self.row_end();
            let row = trim(self.text, self.at..end);
            self.at = end;
            if row.is_some() {
                return row;
            }
        }
        None
    }
}

/// The rows of a text.
pub fn ranges(text: &str) -> impl Iterator<Item = Range<usize>> {
    Rows::of(text, 0..text.len())
}

/// The first row of a text, which names the columns.
pub fn header(text: &str) -> Option<Range<usize>> {
    ranges(text).next()
}

/// How many rows a chunk has.
pub fn count(chunk: &str) -> usize {
    ranges(chunk).count()
}

/// Splits a part of a text that begins where a row does.
pub fn cut(
    text: &str,
    region: Range<usize>,
    chunking: &Chunking,
    tokenizer: &Tokenizer,
    bounds: &Bounds,
) -> Result<Vec<Piece>> {
    let is_first = text[..region.start].trim().is_empty();
    let mut found: Vec<Range<usize>> = Vec::new();
    for (number, row) in Rows::of(text, region).enumerate() {
        bounds.spend(ROW + row.len())?;
        match found.last_mut() {
            Some(header) if is_first && number == 1 => header.end = row.end,
            _ => found.push(row),
        }
    }
    match chunking.unit {
        Unit::Rows => {
            bounds.check_chunks(found.len().div_ceil(chunking.size))?;
            let piece = |rows: &[Range<usize>]| {
                Some(Piece { range: rows.first()?.start..rows.last()?.end, tokens: None })
            };
            Ok(found.chunks(chunking.size).filter_map(piece).collect())
        }
        _ => by_tokens(text, &found, chunking.size, tokenizer, bounds),
    }
}

/// As many rows for each chunk as have at most `size` tokens together, and at least one.
fn by_tokens(
    text: &str,
    rows: &[Range<usize>],
    size: usize,
    tokenizer: &Tokenizer,
    bounds: &Bounds,
) -> Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut rest = rows;
    // The tokens of the first rows of the rest that have been counted.
    let mut counted: VecDeque<usize> = VecDeque::new();
    while let Some(first) = rest.first() {
        let (mut taken, mut sum) = (0, 0);
        while let Some(row) = rest.get(taken) {
            if counted.len() <= taken {
                // With the line break before it.
                let start = if taken == 0 { row.start } else { rest[taken - 1].end };
                counted.push_back(tokenizer.count(&text[start..row.end], bounds)?);
            }
            sum += counted[taken];
            if taken > 0 && sum > size {
                break;
            }
            taken += 1;
        }
        // Together they seldom have more tokens than each has by itself.
        let mut range = first.start..rest[taken - 1].end;
        let mut tokens = tokenizer.count(&text[range.clone()], bounds)?;
        while tokens > size && taken > 1 {
            taken = taken.div_ceil(2).min(taken - 1);
            range.end = rest[taken - 1].end;
            tokens = tokenizer.count(&text[range.clone()], bounds)?;
        }
        pieces.push(Piece { range, tokens: Some(tokens) });
        bounds.check_chunks(pieces.len())?;
        counted.drain(..taken.min(counted.len()));
        rest = &rest[taken..];
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::tests::chunking;
    use crate::chunk_settings::Strategy;

    fn cut(text: &str, size: usize, unit: Unit) -> Vec<&str> {
        let setting = chunking(Strategy::Rows, size, 0, unit);
        let pieces = super::cut(text, 0..text.len(), &setting, &Tokenizer::words(), &Bounds::none()).unwrap();
        pieces.into_iter().map(|piece| &text[piece.range]).collect()
    }

    #[test]
    fn a_row_ends_outside_quotation_marks() {
        let text = "name,note\n\"Tea\",\"two\nlines, \"\"and\"\"\nmore\"\n5\" pipe,x\n\n,\"\"\"\n\"\nlast,";
        assert_eq!(
            cut(text, 1, Unit::Rows),
            ["name,note\n\"Tea\",\"two\nlines, \"\"and\"\"\nmore\"", "5\" pipe,x", ",\"\"\"\n\"", "last,"]
        );
        assert_eq!(
            cut("a\n\"b\nc\n\"d", 1, Unit::Rows).concat().matches(|c: char| c.is_alphabetic()).count(),
            4
        );
        // A quotation that does not end is read line by line.
        assert_eq!(cut("a\nb,\"c\nd\ne", 1, Unit::Rows), ["a\nb,\"c", "d", "e"]);
        // Marks within a value are a part of it, and white space may come before one that begins it.
        assert_eq!(cut("h\na\"\"\nb\n 5\"\"", 1, Unit::Rows), ["h\na\"\"", "b", "5\"\""]);
        assert_eq!(cut("h\n \"a\nb\", \"c\nd\"", 1, Unit::Rows), ["h\n \"a\nb\", \"c\nd\""]);
    }

    #[test]
    fn the_header_stays_with_the_first_row_and_does_not_count() {
        assert_eq!(cut("\nh\n\n1\n2\n3\n4\n5\n", 2, Unit::Rows), ["h\n\n1\n2", "3\n4", "5"]);
        assert_eq!(cut("only\n", 2, Unit::Rows), ["only"]);
        assert_eq!(header("\n a,b \n1,2").map(|range| range.len()), Some(3));
    }

    #[test]
    fn a_row_of_more_than_size_tokens_stays_whole() {
        let text = "h\na b c d e f\ng\nh\ni j k";
        assert_eq!(cut(text, 3, Unit::Tokens), ["h\na b c d e f", "g\nh", "i j k"]);
    }

    #[test]
    fn twice_the_rows_cost_about_twice_the_work() {
        let work = |text: &str, unit| {
            let bounds = Bounds::none();
            let setting = chunking(Strategy::Rows, 50, 0, unit);
            super::cut(text, 0..text.len(), &setting, &Tokenizer::words(), &bounds).unwrap();
            bounds.spent()
        };
        for row in ["1,two words,3\n", "\"a\n\",b\n", "\"\n", ",\"\"\n", "a\n"] {
            for unit in [Unit::Rows, Unit::Tokens] {
                let (one, two) = (work(&row.repeat(20_000), unit), work(&row.repeat(40_000), unit));
                assert!(two < one * 21 / 10 + 1000, "{row:?}: {one}, twice {two}");
            }
        }
    }
}
