//! What is promised about the chunks of any text, under any setting, also after an edit.

use crate::memory::{Limits, measure};
use fastrand::Rng;
use kb_text::chunk::{Outline, chunk};
use kb_text::chunk_settings::{Chunk, Chunking, Span, Strategy, Unit};
use kb_text::rechunk::{PreviousChunk, rechunk};
use kb_text::tokenizer::Tokenizer;
use kb_types::Bounds;
use kb_types::marks::Marked;
use std::sync::OnceLock;

/// Regular expressions keep some megabytes from their first use on.
const LIMITS: Limits = Limits { bytes: (32 << 20, 600), allocations: (20_000, 60) };

/// The work that a text and each of its bytes may take. Chunks of one unit take about 1,500 per byte.
const WORK: (u64, u64) = (100_000, 6000);

/// Cuts the text under some setting, edits it, cuts it again.
pub fn cut(text: &str, markdown: bool, random: &mut Rng) {
    let chunking = setting(random);
    let bounds = Bounds::none();
    let tokenizer = tokenizer(random);
    let marks_of = |text: &str| -> Vec<Marked> {
        if markdown { Outline::read(text, &Bounds::none()).unwrap().marks } else { Vec::new() }
    };
    let marks = marks_of(text);
    let (chunks, cost) = measure(|| chunk(text, &chunking, tokenizer, &marks, &bounds).unwrap());
    cost.within(&LIMITS, text.len());
    assert!(bounds.spent() <= WORK.0 + WORK.1 * text.len() as u64, "{} steps of work", bounds.spent());
    check(text, &chunks, &chunking, tokenizer);
    let again = rechunk(text, &chunking, tokenizer, &marks, &previous(&chunks), &bounds).unwrap();
    assert_eq!(again, chunks, "an unchanged text is cut as it was");
    let edited = edit(text, random);
    let marks = marks_of(&edited);
    let (again, cost) =
        measure(|| rechunk(&edited, &chunking, tokenizer, &marks, &previous(&chunks), &bounds).unwrap());
    cost.within(&LIMITS, text.len() + edited.len());
    check(&edited, &again, &chunking, tokenizer);
}

fn setting(random: &mut Rng) -> Chunking {
    let size = *random.choice(&[1, 2, 7, 40, 254, 800]).unwrap();
    let overlap = random.usize(..size / 2 + 1);
    let strategy = *random
        .choice(&[Strategy::Recursive, Strategy::Markdown, Strategy::Fixed, Strategy::None, Strategy::Rows])
        .unwrap();
    let has_rows = strategy == Strategy::Rows;
    let other = if has_rows { Unit::Rows } else { Unit::Characters };
    Chunking {
        strategy,
        size,
        overlap: if has_rows { 0 } else { overlap },
        unit: *random.choice(&[Unit::Tokens, other]).unwrap(),
        tokenizer: None,
        percentile: None,
        context: None,
        context_llm: None,
    }
}

/// Words, and for some inputs tiktoken's, which take longer.
fn tokenizer(random: &mut Rng) -> &'static Tokenizer {
    static WORDS: OnceLock<Tokenizer> = OnceLock::new();
    static TIKTOKEN: OnceLock<Tokenizer> = OnceLock::new();
    match random.usize(..8) {
        0 => TIKTOKEN.get_or_init(|| Tokenizer::tiktoken("cl100k_base").unwrap()),
        _ => WORDS.get_or_init(Tokenizer::words),
    }
}

fn edit(text: &str, random: &mut Rng) -> String {
    let mut characters: Vec<char> = text.chars().collect();
    let from = random.usize(..characters.len() + 1);
    let to = (from + random.usize(..40)).min(characters.len());
    let new = random.choice(&["", " ", "\n\n", "x", "```\n", "# H\n\nnew 漢字", "a b c d. E"]).unwrap();
    characters.splice(from..to, new.chars());
    characters.into_iter().collect()
}

fn previous(chunks: &[Chunk]) -> Vec<PreviousChunk> {
    let previous = |c: &Chunk| PreviousChunk {
        content: c.content.clone(),
        start: c.span.start,
        end: c.span.end,
        token_count: c.token_count,
    };
    chunks.iter().map(previous).collect()
}

/// The chunks are slices of the text, in order, that leave out nothing but white space, and none is larger
/// than permitted.
pub fn check(text: &str, chunks: &[Chunk], chunking: &Chunking, tokenizer: &Tokenizer) {
    let characters: Vec<char> = text.chars().collect();
    let blank = |from: usize, to: usize| characters[from..to].iter().all(|c| c.is_whitespace());
    let (mut covered, mut last) = (0, None);
    for chunk in chunks {
        let Span { start, end } = chunk.span;
        assert_eq!(chunk.content, characters[start..end].iter().collect::<String>(), "no slice");
        assert!(!blank(start, end), "white space only");
        assert_eq!(
            chunk.token_count,
            tokenizer.count(&chunk.content, &Bounds::none()).unwrap(),
            "miscounted: {:?}",
            chunk.content
        );
        if let Some(Span { start: before, end: until }) = last {
            assert!(start > before && end > until, "out of order: {:?}", chunk.span);
        }
        assert!(start <= covered || blank(covered, start), "lost before {:?}", chunk.span);
        (covered, last) = (end, Some(chunk.span));
        let units = match chunking.unit {
            Unit::Tokens => chunk.token_count,
            // What a row is, only the chunker knows.
            Unit::Rows => 0,
            Unit::Characters => end - start,
        };
        let is_whole = matches!(chunking.strategy, Strategy::None | Strategy::Rows);
        let may_be_larger = is_whole || end - start == 1;
        assert!(units <= chunking.size || may_be_larger, "{units} of {}", chunking.size);
    }
    assert!(blank(covered, characters.len()), "lost at the end");
}
