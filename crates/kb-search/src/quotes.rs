//! Finds the spans of an answer that quote a text: runs of the same words, regardless of case, white space
//! and punctuation, in which a word or two may differ.

use super::automaton::{Automaton, Longest};
use crate::bm25::signs::{is_unseen, is_unspaced};
use std::collections::HashMap;
use std::ops::Range;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// The least weight of a run of unchanged words that is a quote. A word weighs two, and a character of a
/// script without spaces weighs one.
const LEAST: usize = 10;

/// The most words that may differ on each side between two parts of a quote, and the number that must agree
/// after them.
const CHANGED: usize = 2;
const AGREED: usize = 3;

/// A span of an answer that quotes a text, in characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quote {
    pub start: usize,
    pub end: usize,
    /// The index of the text.
    pub text: usize,
}

/// The quotes in an answer, in order and without overlaps. A run that several texts contain is attributed to
/// the first.
pub fn find(answer: &str, texts: &[&str]) -> Vec<Quote> {
    let mut numbers: HashMap<String, u32> = HashMap::new();
    let (mut source, mut weights, mut whose) = (Vec::new(), Vec::new(), Vec::new());
    for (text, content) in texts.iter().enumerate() {
        for word in words(content) {
            let number = numbers.len() as u32;
            source.push(*numbers.entry(word.folded).or_insert(number));
            whose.push(text);
        }
        // A word that occurs nowhere else, so that no run crosses the end of a text.
        source.push(u32::MAX - text as u32);
        whose.push(text);
    }
    let words = words(answer);
    let mut spans = Vec::new();
    let mut quoting = Vec::new();
    for word in words {
        // A word that no text contains gets a number that none can have.
        quoting.push(numbers.get(&word.folded).copied().unwrap_or(u32::MAX - texts.len() as u32));
        spans.push(word.start..word.end);
        weights.push(word.weight);
    }
    let sides = Sides { answer: &quoting, source: &source };
    let longest = Automaton::of(&source).longest(&quoting);
    let mut quotes: Vec<Quote> = Vec::new();
    // For the words of the answer before this place it is decided whether they belong to a quote.
    let mut done = 0;
    for place in 0..longest.len() {
        let Longest { words, end } = longest[place];
        if words == 0 || place < done {
            continue;
        }
        let start = done.max(place + 1 - words);
        // The run that ends at the next word begins at the same place, so it is longer.
        if longest.get(place + 1).is_some_and(|next| place + 2 - next.words <= start) {
            continue;
        }
        let (run, words) = (start..place + 1, place + 1 - start);
        if weights[run.clone()].iter().sum::<usize>() < LEAST {
            continue;
        }
        let run = sides.extended(run, end - words..end, done);
        quotes.push(Quote {
            start: spans[run.start].start,
            end: spans[run.end - 1].end,
            text: whose[end - 1],
        });
        done = run.end;
    }
    quotes
}

/// The words of the answer and of the source.
struct Sides<'a> {
    answer: &'a [u32],
    source: &'a [u32],
}

impl Sides<'_> {
    /// Extends a run of the answer that equals a run of the source by neighbouring parts that agree except
    /// for a word or two. It does not begin before `from`.
    fn extended(&self, answer: Range<usize>, source: Range<usize>, from: usize) -> Range<usize> {
        let (mut end, mut source_end) = (answer.end, source.end);
        while let Some((skipped, source_skipped)) = changes().find(|(a, s)| {
            let ahead = self.answer.get(end + a..end + a + AGREED);
            ahead.is_some()
                && ahead == self.source.get(source_end + s..source_end + s + AGREED)
                && self.is_within(source_end..source_end + s)
        }) {
            (end, source_end) = (end + skipped, source_end + source_skipped);
            while self.answer.get(end).is_some_and(|word| self.source.get(source_end) == Some(word)) {
                (end, source_end) = (end + 1, source_end + 1);
            }
        }
        let (mut start, mut source_start) = (answer.start, source.start);
        while let Some((skipped, source_skipped)) = changes().find(|(a, s)| {
            let (Some(at), Some(source_at)) =
                (start.checked_sub(a + AGREED), source_start.checked_sub(s + AGREED))
            else {
                return false;
            };
            at >= from
                && self.answer[at..at + AGREED] == self.source[source_at..source_at + AGREED]
                && self.is_within(source_start - s..source_start)
        }) {
            (start, source_start) = (start - skipped, source_start - source_skipped);
            while start > from && source_start > 0 && self.answer[start - 1] == self.source[source_start - 1]
            {
                (start, source_start) = (start - 1, source_start - 1);
            }
        }
        start..end
    }

    /// Whether these words of the source belong to a single text.
    fn is_within(&self, source: Range<usize>) -> bool {
        self.source.get(source).is_some_and(|words| words.iter().all(|word| *word < u32::MAX / 2))
    }
}

/// The numbers of words that may differ in the answer and in the source, the least first.
fn changes() -> impl Iterator<Item = (usize, usize)> {
    let mut all: Vec<(usize, usize)> =
        (0..=CHANGED).flat_map(|a| (0..=CHANGED).map(move |s| (a, s))).filter(|(a, s)| a + s > 0).collect();
    all.sort_by_key(|(a, s)| (a.max(s).to_owned(), a + s));
    all.into_iter()
}

/// The words of a text, in order, as they are compared.
pub fn folded_words(text: &str) -> Vec<String> {
    words(text).into_iter().map(|word| word.folded).collect()
}

struct Word {
    folded: String,
    /// The offset in characters from the start of the text.
    start: usize,
    end: usize,
    weight: usize,
}

/// The words of a text, separated by characters that are neither letters nor digits. In scripts without
/// spaces each character is a word. Characters that look the same are equal.
fn words(text: &str) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let mut is_open = false;
    for (place, character) in text.chars().enumerate() {
        let is_mark = is_combining_mark(character);
        if !(character.is_alphanumeric() || is_mark && is_open) {
            // Apostrophes and soft hyphens may stand within a word.
            is_open &= matches!(character, '\'' | '\u{2019}') || is_unseen(character);
            continue;
        }
        let is_alone = is_unspaced(character);
        match words.last_mut().filter(|_| is_open && !is_alone) {
            Some(word) => {
                word.folded.extend(character.to_lowercase());
                word.end = place + 1;
            }
            None => words.push(Word {
                folded: character.to_lowercase().collect(),
                start: place,
                end: place + 1,
                weight: if is_alone { 1 } else { 2 },
            }),
        }
        is_open = !is_alone;
    }
    for word in words.iter_mut().filter(|word| !word.folded.is_ascii()) {
        word.folded = word.folded.nfkc().flat_map(char::to_lowercase).collect();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The quotes as texts, with the indexes of the texts that they quote.
    fn found(answer: &str, texts: &[&str]) -> Vec<(String, usize)> {
        let slice = |quote: &Quote| answer.chars().take(quote.end).skip(quote.start).collect();
        find(answer, texts).iter().map(|quote| (slice(quote), quote.text)).collect()
    }

    const LEAVE: &str = "Everybody has thirty days of leave a year, to be taken until March of the next one.";
    const TRAINS: &str = "Journeys by train are paid in full; those by car are not.";

    #[test]
    fn a_run_of_five_words_is_a_quote_whatever_its_case_and_white_space() {
        let answer =
            "You asked: EVERYBODY has\n thirty days of leave! And journeys by train, are paid (in full).";
        let expected = [
            ("EVERYBODY has\n thirty days of leave".to_string(), 0),
            ("journeys by train, are paid (in full".into(), 1),
        ];
        assert_eq!(found(answer, &[LEAVE, TRAINS]), expected);
        assert_eq!(found("Everybody has thirty days", &[LEAVE]), []);
        assert_eq!(found("has thirty days of leave", &[LEAVE]).len(), 1);
    }

    #[test]
    fn words_that_differ_within_a_quote_do_not_end_it() {
        let answer = "Everybody has thirty days of leave every year, to be taken until March.";
        assert_eq!(found(answer, &[LEAVE]), [(answer.trim_end_matches('.').to_string(), 0)]);
        // Also on the left. Four words by themselves are not a quote.
        let answer = "Well: everybody has thirty free days of leave a year.";
        assert_eq!(found(answer, &[LEAVE])[0].0, "everybody has thirty free days of leave a year");
        let far = "Everybody has thirty days of leave but nobody knows that it must be taken until March of the next one.";
        assert_eq!(found(far, &[LEAVE]).len(), 2);
    }

    #[test]
    fn no_quote_crosses_the_end_of_a_text_and_the_first_equal_text_counts() {
        let answer = "a b c d e f g h i j";
        assert_eq!(found(answer, &["a b c", "d e f g", "h i j"]), []);
        assert_eq!(found(answer, &["x y", "b c d e f", "b c d e f"]), [("b c d e f".to_string(), 1)]);
        assert_eq!(found("d e f g h i j k", &["a b c d e f g", "h i j k l m n"]), []);
    }

    #[test]
    fn scripts_without_spaces_are_read_character_by_character() {
        let text = "港は六時に開きます。市場は七時に開きます。";
        assert_eq!(found("はい、港は六時に開きますよ。", &[text]), []);
        assert_eq!(
            found("はい、港は六時に開きます。市場は休みです。", &[text]),
            [("港は六時に開きます。市場は".to_string(), 0)]
        );
        assert_eq!(found("", &[text]), []);
        assert_eq!(found("text", &[]), []);
    }

    #[test]
    fn characters_that_look_the_same_are_equal_and_offsets_stay_right() {
        let text = "Das Ge\u{ad}samt\u{ad}kon\u{ad}zept fu\u{308}r alle Tage im Jahr.";
        let answer = "Das Gesamtkonzept f\u{fc}r ａｌｌｅ Tage im Jahr.";
        assert_eq!(found(answer, &[text]), [(answer.trim_end_matches('.').to_string(), 0)]);
        let quotes = find(text, &[answer]);
        assert_eq!((quotes[0].start, quotes[0].end), (0, text.chars().count() - 1));
    }

    #[test]
    fn offsets_are_counted_in_characters() {
        let quotes = find("Ä🦀é: everybody has thirty days of leave.", &[LEAVE]);
        assert_eq!((quotes[0].start, quotes[0].end), (5, 39));
    }

    #[test]
    fn repetitive_input_costs_in_proportion_to_its_length() {
        let begun = std::time::Instant::now();
        let many = "word ".repeat(100_000);
        assert_eq!(found(&many, &[&many]), [(many.trim_end().to_string(), 0)]);
        let some = "word ".repeat(1000);
        let runs = found(&many, &[&some, &some]);
        assert_eq!((runs.len(), runs[99].0.len()), (100, some.len() - 1));
        let alternating = "a b ".repeat(50_000);
        assert!(!found(&alternating, &[&alternating, &many]).is_empty());
        let numbers: String = (0..100_000).map(|i| format!("{} ", i % 300)).collect();
        assert!(!found(&numbers, &[&numbers]).is_empty());
        // A text without blanks is one word.
        assert_eq!(found(&"x".repeat(1_000_000), &[&many]), []);
        assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    }
}
