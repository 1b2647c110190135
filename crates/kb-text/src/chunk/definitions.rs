//! Splits source code at its definitions, for strategies recursive and markdown.
//!
//! Where definitions begin and end, only kb-extract knows, because no parser of a foreign format runs in a
//! process of PostgreSQL. It marks these places once, whatever the size of chunks is, and the chunks are made
//! of them here, because each build has its own size and tokeniser. Therefore this is not text-splitter's
//! CodeSplitter, which parses and splits at once.

use super::{Outline, Piece, trim, windows};
use crate::chunk_settings::{Chunking, Strategy, Unit};
use crate::tokenizer::Tokenizer;
use kb_types::Bounds;
use kb_types::error::Result;
use std::ops::Range;

/// A chunk that is smaller than the size divided by this goes on, even if an outer definition ends.
const SMALL: usize = 4;
/// The work counted for a section, in bytes.
const SECTION: usize = 16;

/// From one place where a definition begins or ends to the next.
struct Section {
    range: Range<usize>,
    /// The level of the definition that begins or ends at its start.
    level: usize,
    units: usize,
}

/// The chunks of `region`. Each has as many sections as fit, and ends where the outermost definition begins
/// or ends. A section of more than `size` units is split as by strategy recursive.
pub fn split(
    text: &str,
    region: Range<usize>,
    chunking: &Chunking,
    tokenizer: &Tokenizer,
    outline: &Outline,
    bounds: &Bounds,
) -> Result<Vec<Piece>> {
    let recursive = Chunking { strategy: Strategy::Recursive, ..chunking.clone() };
    let sections = sections(text, region, chunking, tokenizer, outline, bounds)?;
    let mut pieces = Vec::new();
    let mut rest = &sections[..];
    while let Some(first) = rest.first() {
        let taken = fitting(rest, chunking.size);
        if taken == 0 {
            let range = first.range.clone();
            pieces.extend(windows::split(text, range, &recursive, tokenizer, outline, bounds)?);
            rest = &rest[1..];
        } else {
            let whole = trim(text, first.range.start..rest[taken - 1].range.end);
            pieces.extend(whole.map(|range| Piece { range, tokens: None }));
            rest = &rest[taken..];
        }
        bounds.check_chunks(pieces.len())?;
    }
    Ok(pieces)
}

/// The sections of `region`, of which the first begins where it does.
fn sections(
    text: &str,
    region: Range<usize>,
    chunking: &Chunking,
    tokenizer: &Tokenizer,
    outline: &Outline,
    bounds: &Bounds,
) -> Result<Vec<Section>> {
    let within = |(offset, _): &&(usize, usize)| *offset > region.start && *offset < region.end;
    let begin = [(region.start, 0)].into_iter();
    let starts: Vec<(usize, usize)> =
        begin.chain(outline.definitions.iter().filter(within).copied()).collect();
    let ends = starts.iter().skip(1).map(|(start, _)| *start).chain([region.end]);
    let section = |(&(start, level), end): (&(usize, usize), usize)| {
        let part = &text[start..end];
        bounds.spend(SECTION + part.len())?;
        let units = match chunking.unit {
            Unit::Tokens => tokenizer.count(part, bounds)?,
            Unit::Characters | Unit::Rows => part.chars().count(),
        };
        Ok(Section { range: start..end, level, units })
    };
    starts.iter().zip(ends).map(section).collect()
}

/// How many of the sections the next chunk has. 0: the first one does not fit.
fn fitting(sections: &[Section], size: usize) -> usize {
    let mut units = 0;
    let (mut best, mut level) = (0, usize::MAX);
    for (taken, section) in sections.iter().enumerate() {
        let is_small = units * SMALL < size;
        if taken > 0 && (is_small || section.level <= level) {
            best = taken;
            level = if is_small { usize::MAX } else { section.level };
        }
        units += section.units;
        if units > size {
            return best;
        }
    }
    sections.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::tests::{check, chunking};
    use crate::chunk::{chunk, finish};
    use crate::chunk_settings::Chunk;
    use crate::rechunk::{PreviousChunk, rechunk};
    use fastrand::Rng;
    use kb_types::{Mark, Marked};

    fn marks(text: &str, definitions: &[(&str, usize)]) -> Vec<Marked> {
        let mark = |(name, level): &(&str, usize)| Marked {
            offset: text.find(name).unwrap(),
            mark: Mark::Definition { level: *level, name: name.to_string() },
        };
        definitions.iter().map(mark).collect()
    }

    fn previous(chunk: &Chunk) -> PreviousChunk {
        PreviousChunk {
            content: chunk.content.clone(),
            start: chunk.span.start,
            end: chunk.span.end,
            token_count: chunk.token_count,
        }
    }

    #[test]
    fn code_is_cut_where_the_outermost_definitions_begin() {
        let text =
            "use a;\n\nA {\n  a1 one two three\n\n  a2 one two three\n}\n\nB {\n  b1 one two three\n}\n";
        let marks = marks(text, &[("A", 1), ("a1", 2), ("a2", 2), ("B", 1), ("b1", 2)]);
        let cut = |size| {
            let setting = chunking(Strategy::Recursive, size, 0, Unit::Tokens);
            let chunks = chunk(text, &setting, &Tokenizer::words(), &marks, &Bounds::none()).unwrap();
            check(text, &chunks, &setting, &Tokenizer::words());
            chunks.into_iter().map(|c| (c.content, c.locator.headings.join("."))).collect::<Vec<_>>()
        };
        let found = cut(18);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!((found[1].0.as_str(), found[1].1.as_str()), ("B {\n  b1 one two three\n}", "B"));
        let found = cut(10);
        assert!(found.iter().any(|(text, name)| text.starts_with("a2 one") && name == "A.a2"), "{found:?}");
        // A definition that does not fit is cut inside, and everything else is as before.
        assert!(cut(3).len() > 6);
        assert_eq!(cut(100).len(), 1);
    }

    #[test]
    fn code_keeps_every_promise_with_every_size_and_after_edits() {
        let mut random = Rng::with_seed(5);
        for round in 0..60 {
            let words = ["fn", "x", "{", "}", "é;", "\n", "\n\n", "    ", "a_long_name(with, arguments)"];
            let text: String =
                (0..round * 8).map(|_| words[random.usize(..words.len())]).collect::<Vec<_>>().join(" ");
            let marks: Vec<Marked> = text
                .match_indices("fn")
                .map(|(offset, _)| Marked {
                    offset,
                    mark: Mark::Definition { level: 1 + random.usize(..3), name: "f".into() },
                })
                .collect();
            for strategy in [Strategy::Recursive, Strategy::Markdown] {
                for (size, overlap, unit) in
                    [(1, 0, Unit::Tokens), (12, 3, Unit::Tokens), (40, 6, Unit::Characters)]
                {
                    let setting = chunking(strategy, size, overlap, unit);
                    let (words, bounds) = (Tokenizer::words(), Bounds::none());
                    let chunks = chunk(&text, &setting, &words, &marks, &bounds).unwrap();
                    check(&text, &chunks, &setting, &words);
                    let before: Vec<PreviousChunk> = chunks.iter().map(previous).collect();
                    let edit = text.find("{").unwrap_or(0);
                    let edited = format!("{}fn new{}", &text[..edit], &text[edit..]);
                    let moved = |marked: &Marked| Marked {
                        offset: marked.offset + if marked.offset >= edit { 6 } else { 0 },
                        ..marked.clone()
                    };
                    let marks: Vec<Marked> = marks.iter().map(moved).collect();
                    let again = rechunk(&edited, &setting, &words, &marks, &before, &bounds).unwrap();
                    check(&edited, &again, &setting, &words);
                }
            }
        }
    }

    #[test]
    fn twice_the_definitions_cost_about_twice_the_work() {
        let work = |count: usize| {
            let text = "fn a() { b() }\n".repeat(count);
            let mark =
                |i| Marked { offset: 15 * i, mark: Mark::Definition { level: 1 + i % 3, name: "a".into() } };
            let marks: Vec<Marked> = (0..count).map(mark).collect();
            let bounds = Bounds::none();
            let setting = chunking(Strategy::Recursive, 800, 0, Unit::Tokens);
            let outline = Outline::of_definitions(&marks).unwrap();
            let words = Tokenizer::words();
            let pieces = split(&text, 0..text.len(), &setting, &words, &outline, &bounds).unwrap();
            finish(&text, pieces, &words, &marks, &bounds).unwrap();
            bounds.spent()
        };
        let (one, two) = (work(10_000), work(20_000));
        assert!(two < one * 21 / 10, "{one}, twice {two}");
    }
}
