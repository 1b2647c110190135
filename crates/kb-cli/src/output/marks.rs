//! Words of a question, marked in the passages that answer it.

use super::{MARK, Output};
use std::collections::HashSet;
use unicode_segmentation::UnicodeSegmentation;

/// Words of questions that say nothing about an answer.
const COMMON: &[&str] = &[
    "about", "and", "are", "can", "could", "did", "does", "for", "from", "had", "has", "have", "how", "into",
    "its", "may", "must", "not", "our", "shall", "should", "that", "the", "their", "there", "these", "they",
    "this", "was", "were", "what", "when", "where", "which", "who", "whom", "whose", "why", "will", "with",
    "would", "you", "your",
];
/// Words of fewer characters are marked only if they have a digit.
const SHORTEST: usize = 3;
/// A word that goes on differently after this many characters at the end is the same word, inflected.
const INFLECTION: usize = 3;

pub struct Words(HashSet<Vec<char>>);

impl Words {
    pub fn of(question: &str) -> Words {
        let words = question.unicode_words().map(lower).filter(|word| {
            let text: String = word.iter().collect();
            let is_telling = word.len() >= SHORTEST || word.iter().any(|c| c.is_numeric() || !c.is_ascii());
            is_telling && !COMMON.contains(&text.as_str())
        });
        Words(words.collect())
    }

    fn has(&self, word: &str) -> bool {
        let lowered = lower(word);
        let is_common = || COMMON.contains(&word.to_lowercase().as_str());
        self.0.contains(&lowered) || self.0.iter().any(|known| is_inflected(known, &lowered)) && !is_common()
    }

    /// The text, which is clean, with its words of the question marked.
    pub fn marked(&self, text: &str, output: &Output) -> String {
        if output.paint(MARK, "x") == "x" {
            return text.to_string();
        }
        let parts = text.split_word_bounds();
        parts.map(|part| if self.has(part) { output.paint(MARK, part) } else { part.to_string() }).collect()
    }
}

fn lower(word: &str) -> Vec<char> {
    word.to_lowercase().chars().collect()
}

/// Whether two words of letters share their beginning, and differ at the end by little.
fn is_inflected(one: &[char], other: &[char]) -> bool {
    let (shorter, longer) = (one.len().min(other.len()), one.len().max(other.len()));
    let shared = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let is_word = |word: &[char]| word.iter().all(|c| c.is_alphabetic());
    shorter > SHORTEST
        && longer - shared <= INFLECTION
        && shared + 1 >= shorter
        && shared >= SHORTEST
        && is_word(one)
        && is_word(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Colour;

    #[test]
    fn the_telling_words_of_a_question_are_marked() {
        let output = Output::new(false, Colour::Always);
        let words = Words::of("How many days of leave are there in PG15, and the Überstunden?");
        let marked = |text: &str| {
            let shown = words.marked(text, &output);
            shown.replace(&MARK.render().to_string(), "<").replace(&MARK.render_reset().to_string(), ">")
        };
        assert_eq!(
            marked("The Day has many LEAVES; the überstunden of pg15."),
            "The Day has <many> <LEAVES>; the <überstunden> of <pg15>."
        );
        assert_eq!(marked("leaving leaflet daylight"), "<leaving> leaflet daylight");
        let without = Words::of("without").marked("with without", &output);
        assert_eq!(without, format!("with {}", output.paint(MARK, "without")));
        let plain = Output::new(false, Colour::Never);
        assert_eq!(words.marked("leave", &plain), "leave");
    }
}
