//! Splits a text into the sentences that strategy semantic compares, by the rules of Unicode (UAX #29).

use super::{Outline, Piece, trim, windows};
use crate::chunk_settings::{Chunking, Strategy, Unit};
use crate::tokenizer::Tokenizer;
use kb_types::Bounds;
use kb_types::error::Result;
use std::ops::Range;
use unicode_segmentation::UnicodeSegmentation;

/// A sentence with fewer characters says too little to be compared, so it is joined to what follows.
const SHORTEST: usize = 20;
const LONGEST_RUN: usize = 64;

/// A sentence: a byte range without white space at its ends, and its number of units. Where units are
/// characters, the white space after it counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Sentence {
    pub range: Range<usize>,
    pub units: usize,
}

/// The sentences of `text` in order. Together they contain all of it except white space. A sentence of more
/// than `size` units is split as by strategy recursive.
pub fn sentences(
    text: &str,
    chunking: &Chunking,
    tokenizer: &Tokenizer,
    bounds: &Bounds,
) -> Result<Vec<Sentence>> {
    let unwrapped = unwrapped(text);
    let mut found = Vec::new();
    let mut start = 0;
    for (at, part) in unwrapped.split_sentence_bound_indices() {
        bounds.spend(part.len())?;
        let end = at + part.len();
        let is_last = end == text.len();
        if !is_last && text[at..end].trim_start().is_empty() {
            // A blank part adds nothing to a short sentence before it, which is therefore not scanned again.
            if start == at {
                start = end;
            }
            continue;
        }
        if let Some(range) = trim(text, start..end) {
            let is_short = text[range.clone()].chars().take(SHORTEST).count() < SHORTEST;
            if is_short && !is_last {
                continue;
            }
            add(text, range, chunking, tokenizer, bounds, &mut found)?;
            bounds.check_chunks(found.len())?;
        }
        start = end;
    }
    if chunking.unit == Unit::Characters {
        let starts: Vec<usize> = found.iter().skip(1).map(|next| next.range.start).collect();
        for (sentence, next) in found.iter_mut().zip(starts) {
            sentence.units += text[sentence.range.end..next].chars().count();
        }
    }
    Ok(found)
}

fn add(
    text: &str,
    range: Range<usize>,
    chunking: &Chunking,
    tokenizer: &Tokenizer,
    bounds: &Bounds,
    found: &mut Vec<Sentence>,
) -> Result<()> {
    let units = units(&text[range.clone()], chunking, tokenizer, bounds)?;
    if units <= chunking.size {
        found.push(Sentence { range, units });
        return Ok(());
    }
    let recursive = Chunking { strategy: Strategy::Recursive, ..chunking.clone() };
    for Piece { range, tokens } in
        windows::split(text, range, &recursive, tokenizer, &Outline::default(), bounds)?
    {
        let count = || self::units(&text[range.clone()], chunking, tokenizer, bounds);
        let units = tokens.map_or_else(count, Ok)?;
        found.push(Sentence { range, units });
    }
    Ok(())
}

fn units(text: &str, chunking: &Chunking, tokenizer: &Tokenizer, bounds: &Bounds) -> Result<usize> {
    match chunking.unit {
        Unit::Tokens => tokenizer.count(text, bounds),
        Unit::Characters | Unit::Rows => Ok(text.chars().count()),
    }
}

/// The text with spaces in place of line feeds inside paragraphs, because the rules end a sentence at every
/// line feed. Byte offsets do not change. The line feed stays before a line that begins with anything but a
/// letter or a digit, such as an item of a list or a row of a table.
///
/// A sentence also ends within a run of [`LONGEST_RUN`] characters that are neither letters, digits, line
/// feeds nor full stops. After a full stop the rules look ahead to the end of such a run from each space and
/// closing character in it, which would be quadratic. Combining marks, some of which count as letters, belong
/// to the run.
fn unwrapped(text: &str) -> String {
    let mut rest = text.chars().peekable();
    let mut unwrapped = String::with_capacity(text.len());
    let mut previous = '\n';
    let mut run = 0;
    while let Some(c) = rest.next() {
        let is_wrap = c == '\n' && previous != '\n' && rest.peek().is_some_and(|next| next.is_alphanumeric());
        let ends_run =
            matches!(c, '\n' | '.') || c.is_alphanumeric() && (c.is_ascii() || run == 0 || !is_extend(c));
        run = if ends_run { 0 } else { run + 1 };
        match run {
            LONGEST_RUN => {
                unwrapped.push_str(separator(c.len_utf8()));
                run = 0;
            }
            _ if is_wrap => unwrapped.push(' '),
            _ => unwrapped.push(c),
        }
        previous = c;
    }
    unwrapped
}

/// Whether the rules treat a character as a part of the one before it.
fn is_extend(c: char) -> bool {
    let text = ['!', c, 'A'].iter().collect::<String>();
    text.split_sentence_bounds().next().is_some_and(|first| first.len() > 1)
}

/// A separator of this many bytes, 1 to 4, that ends a sentence.
fn separator(bytes: usize) -> &'static str {
    match bytes {
        1 => "\n",
        2 => "\u{85}",
        3 => "\u{2029}",
        _ => "\u{feff}\n",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, size: usize) -> Vec<String> {
        let chunking = Chunking::parse(
            &serde_json::json!({"strategy": "semantic", "unit": "characters", "size": size}),
            None,
        );
        let found = sentences(text, &chunking.unwrap(), &Tokenizer::words(), &Bounds::none()).unwrap();
        found.iter().map(|sentence| text[sentence.range.clone()].to_string()).collect()
    }

    #[test]
    fn sentences_end_where_unicode_says_and_lines_do_not_end_them() {
        let text = "# Leave\n\nEvery employee has 25 days of\nleave. Dr. Smith has 3.5 weeks more! Yes.\n- one list item of some words\n- another item of some words\n";
        assert_eq!(
            of(text, 1000),
            [
                "# Leave\n\nEvery employee has 25 days of\nleave.",
                "Dr. Smith has 3.5 weeks more!",
                "Yes.\n- one list item of some words",
                "- another item of some words"
            ]
        );
        assert!(of(" \n\n ", 1000).is_empty());
        assert_eq!(of("Short.", 1000), ["Short."]);
    }

    #[test]
    fn long_rows_of_spaces_or_marks_are_read_in_linear_time_and_nothing_is_lost() {
        let units = [" ", ")", "»", "」", "🙶", ")\u{5b0}", ")\u{93f}", ")\u{102b}", "|", "\u{ff9e})"];
        for (unit, count) in units.map(|unit| (unit, 300_000)) {
            let row = unit.repeat(count);
            for text in
                [format!("First of all.{row}1 and more of it."), format!("A. b.\n{}", "\n".repeat(count))]
            {
                let found = of(&text, 100_000);
                let plain = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
                assert_eq!(plain(&found.concat()), plain(&text));
            }
        }
    }

    #[test]
    fn text_where_a_long_run_is_ended_is_not_lost() {
        for length in 50..80 {
            for mark in ["|", ")", "»", "🙶"] {
                let text = format!(
                    "The first line.\n{}{mark}\nAnd the last one of some length.",
                    " ".repeat(length)
                );
                let found = of(&text, 100_000).concat();
                assert_eq!(found.matches(mark).count(), 1, "{length} spaces and {mark}");
            }
        }
    }

    #[test]
    fn a_sentence_over_the_size_is_cut_and_nothing_is_lost() {
        let text = format!("{} End of it all, at last.", "漢字 word ".repeat(200));
        let found = of(&text, 50);
        assert!(found.iter().all(|part| part.chars().count() <= 50));
        let plain = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
        assert_eq!(plain(&found.concat()), plain(&text));
    }
}
