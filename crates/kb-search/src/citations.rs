//! Checks the citations in an answer of a chat model: markers such as [1] or [1, 3], which name passages that
//! the model was given.
//!
//! A marker of a passage that was not given is an invention and is removed from the answer. Code is left
//! alone, because [3] is an index there. A passage that is cited is quoted by the sentence of it that shares
//! the most words with what the answer says before the marker.

use super::quotes;
use std::collections::HashMap;
use std::ops::Range;

/// The most digits of a marker: [2024] is none.
const DIGITS: usize = 3;
/// The most citations that have a quote, the most words that a quote is chosen by, and the most sentences of
/// a passage among which it is chosen. They bound the work for an answer that consists of markers.
const QUOTED: usize = 1_000;
const WORDS: usize = 50;
const SENTENCES: usize = 500;
/// The most bytes of a quote.
const QUOTE: usize = 1_000;

/// An answer with citations of what was given only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedAnswer {
    pub text: String,
    /// In the order of the answer.
    pub citations: Vec<Citation>,
    /// The numbers that were cited although no passage has them, ascending, each once.
    pub invalid: Vec<usize>,
}

/// A number in a marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Citation {
    /// The number of the passage, from 1.
    pub number: usize,
    /// The place of the whole marker in the text, in characters, the end exclusive.
    pub start: usize,
    pub end: usize,
    /// The sentence of the passage, as it is written there. None if none shares a word with the answer.
    pub quote: Option<String>,
}

/// Checks the citations of an answer. The passages are numbered from 1.
pub fn check(answer: &str, passages: &[&str]) -> CheckedAnswer {
    let mut sentences: HashMap<usize, Sentences> = HashMap::new();
    let (mut text, mut characters) = (String::with_capacity(answer.len()), 0);
    let (mut citations, mut invalid): (Vec<Citation>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut add = |text: &mut String, part: &str| {
        text.push_str(part);
        characters += part.chars().count();
        characters
    };
    // What the answer says before a marker, from the end of the marker before it.
    let (mut done, mut said) = (0, 0..0);
    for marker in markers(answer) {
        let before = &answer[done..marker.place.start];
        if !before.trim().is_empty() {
            said = done..marker.place.start;
        }
        done = marker.place.end;
        let is_given = |number: &usize| (1..=passages.len()).contains(number);
        invalid.extend(marker.numbers.iter().filter(|number| !is_given(number)));
        let given: Vec<usize> = marker.numbers.iter().copied().filter(is_given).collect();
        if given.is_empty() {
            // "word [9]." becomes "word."
            let is_spaced = answer[done..].chars().next().is_none_or(|next| !next.is_alphanumeric());
            add(&mut text, if is_spaced { before.strip_suffix(' ').unwrap_or(before) } else { before });
            continue;
        }
        let start = add(&mut text, before);
        let end = match given.len() == marker.numbers.len() {
            true => add(&mut text, &answer[marker.place]),
            false => add(&mut text, &written(&given)),
        };
        let claim = last_sentence(&answer[said.clone()]);
        for number in given {
            let quote = (citations.len() < QUOTED).then(|| {
                let passage = passages[number - 1];
                sentences.entry(number).or_insert_with(|| Sentences::of(passage)).nearest(claim)
            });
            citations.push(Citation { number, start, end, quote: quote.flatten() });
        }
    }
    add(&mut text, &answer[done..]);
    invalid.sort_unstable();
    invalid.dedup();
    CheckedAnswer { text, citations, invalid }
}

fn written(numbers: &[usize]) -> String {
    let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
    format!("[{}]", numbers.join(", "))
}

/// The last sentence of what precedes a marker, which may stand before or after its full stop.
fn last_sentence(said: &str) -> &str {
    let trimmed = said.trim_end();
    split(trimmed).last().map_or(trimmed, |last| &trimmed[last])
}

struct Marker {
    /// In bytes.
    place: Range<usize>,
    /// Each once.
    numbers: Vec<usize>,
}

/// The markers of an answer that are not in code.
fn markers(answer: &str) -> Vec<Marker> {
    let code = code(answer);
    let (mut markers, mut at) = (Vec::new(), 0);
    let mut code = code.iter().peekable();
    while let Some(found) = answer[at..].find('[') {
        let start = at + found;
        at = start + 1;
        while code.next_if(|code| code.end <= start).is_some() {}
        if let Some(code) = code.peek().filter(|code| code.contains(&start)) {
            at = code.end;
            continue;
        }
        // A marker is short, so a closing bracket far away is not looked for.
        let most = answer.floor_char_boundary(answer.len().min(start + 256));
        let Some(length) = answer[start..most].find(']') else { continue };
        let parts = answer[start + 1..start + length].split(',').map(str::trim);
        let number = |part: &str| {
            let is_number = !part.is_empty() && part.len() <= DIGITS;
            part.bytes().all(|byte| byte.is_ascii_digit() && is_number).then(|| part.parse().ok()).flatten()
        };
        let Some(mut numbers) = parts.map(number).collect::<Option<Vec<usize>>>() else { continue };
        let mut seen = Vec::new();
        numbers.retain(|number| {
            !seen.contains(number) && {
                seen.push(*number);
                true
            }
        });
        at = start + length + 1;
        markers.push(Marker { place: start..at, numbers });
    }
    markers
}

/// The spans of code: text between runs of as many backticks. Three or more that are not closed run to the
/// end, as a fence does.
fn code(answer: &str) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (at, _) in answer.match_indices('`') {
        match runs.last_mut().filter(|run| run.end == at) {
            Some(run) => run.end += 1,
            None => runs.push(at..at + 1),
        }
    }
    // For each run, the next one of the same length, found from the end in one pass.
    let mut next_of: HashMap<usize, usize> = HashMap::new();
    let mut closing = vec![None; runs.len()];
    for (place, run) in runs.iter().enumerate().rev() {
        closing[place] = next_of.insert(run.len(), place);
    }
    let (mut code, mut place) = (Vec::new(), 0);
    while let Some(run) = runs.get(place) {
        match closing[place] {
            Some(close) => {
                code.push(run.start..runs[close].end);
                place = close + 1;
            }
            None if run.len() >= 3 => {
                code.push(run.start..answer.len());
                break;
            }
            None => place += 1,
        }
    }
    code
}

/// The sentences of a passage, and in which of them each word occurs.
struct Sentences {
    texts: Vec<String>,
    /// The number of distinct words of each.
    sizes: Vec<usize>,
    places: HashMap<String, Vec<usize>>,
}

impl Sentences {
    fn of(passage: &str) -> Sentences {
        let (mut texts, mut sizes) = (Vec::new(), Vec::new());
        let mut places: HashMap<String, Vec<usize>> = HashMap::new();
        for sentence in split(passage).take(SENTENCES) {
            let mut sentence = &passage[sentence];
            sentence = &sentence[..sentence.floor_char_boundary(QUOTE)];
            let mut words = quotes::folded_words(sentence);
            words.sort_unstable();
            words.dedup();
            sizes.push(words.len());
            for word in words {
                places.entry(word).or_default().push(texts.len());
            }
            texts.push(sentence.trim().to_string());
        }
        Sentences { texts, sizes, places }
    }

    /// The sentence that shares the most words with a claim; of several, the one with the fewest others.
    fn nearest(&self, claim: &str) -> Option<String> {
        let mut words = quotes::folded_words(claim);
        words.drain(..words.len().saturating_sub(WORDS));
        words.sort_unstable();
        words.dedup();
        let mut shared = vec![0usize; self.texts.len()];
        for place in words.iter().filter_map(|word| self.places.get(word)).flatten() {
            shared[*place] += 1;
        }
        let order = |place: &usize| (shared[*place], usize::MAX - self.sizes[*place], usize::MAX - *place);
        let best = (0..self.texts.len()).max_by_key(order)?;
        (shared[best] > 0).then(|| self.texts[best].clone())
    }
}

/// The sentences of a text: they end with a line, or with a mark that ends sentences and the space behind it.
fn split(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        while start < text.len() {
            let mut characters = text[start..].char_indices().peekable();
            let mut end = text.len();
            while let Some((at, character)) = characters.next() {
                let next = characters.peek().map(|(_, next)| *next);
                let is_end = match character {
                    '\n' => true,
                    '.' | '!' | '?' | '…' => next.is_some_and(char::is_whitespace),
                    '。' | '！' | '？' => true,
                    _ => false,
                };
                if is_end {
                    end = start + at + character.len_utf8();
                    break;
                }
            }
            let sentence = start..end;
            start = end;
            if !text[sentence.clone()].trim().is_empty() {
                return Some(sentence);
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAVE: &str =
        "Leave is planned early. Everybody has thirty days of annual leave. Ask your manager.";
    const TRAVEL: &str = "Journeys by train are paid in full.\nBook second class.";

    fn checked(answer: &str) -> CheckedAnswer {
        check(answer, &[LEAVE, TRAVEL])
    }

    fn numbers(answer: &CheckedAnswer) -> Vec<usize> {
        answer.citations.iter().map(|citation| citation.number).collect()
    }

    #[test]
    fn a_citation_of_what_was_given_quotes_the_sentence_that_says_it() {
        let text = "Du hast dreißig days of leave [1]. Book second class [2].";
        let answer = checked(text);
        assert_eq!((answer.text.as_str(), &answer.invalid[..]), (text, &[][..]));
        let quotes: Vec<_> = answer.citations.iter().map(|citation| citation.quote.as_deref()).collect();
        assert_eq!(quotes, [Some("Everybody has thirty days of annual leave."), Some("Book second class.")]);
        // Positions count characters, not bytes.
        let characters: Vec<char> = answer.text.chars().collect();
        for (citation, marker) in answer.citations.iter().zip(["[1]", "[2]"]) {
            assert_eq!(characters[citation.start..citation.end].iter().collect::<String>(), marker);
        }
        // A marker behind the full stop cites the sentence before it.
        assert_eq!(
            checked("It is paid. Ask your manager. [1]").citations[0].quote.as_deref(),
            Some("Ask your manager.")
        );
        assert_eq!(checked("Völlig anders [1]").citations[0].quote, None);
    }

    #[test]
    fn a_citation_of_what_was_not_given_is_removed_and_reported() {
        for (given, kept, cited, invalid) in [
            ("Thirty days [9].", "Thirty days.", vec![], vec![9]),
            ("Thirty days[3][1].", "Thirty days[1].", vec![1], vec![3]),
            ("Thirty days [1, 7, 2, 7].", "Thirty days [1, 2].", vec![1, 2], vec![7]),
            ("[0] Thirty", " Thirty", vec![], vec![0]),
            ("Days [9]of", "Days of", vec![], vec![9]),
            ("a [9] b [8] c [9]", "a b c", vec![], vec![8, 9]),
        ] {
            let answer = checked(given);
            assert_eq!((answer.text.as_str(), numbers(&answer)), (kept, cited), "{given}");
            assert_eq!(answer.invalid, invalid, "{given}");
            let characters: Vec<char> = answer.text.chars().collect();
            for citation in &answer.citations {
                assert_eq!((characters[citation.start], characters[citation.end - 1]), ('[', ']'), "{given}");
            }
        }
        assert_eq!(check("So it is [1].", &[]).text, "So it is.");
    }

    #[test]
    fn what_is_no_marker_stays_as_it_is() {
        for text in [
            "",
            "Since [2024] and [1a], [], [ ], [1,], [-1] or [a].",
            "Use `x[9]`, ``y`[8]``, or\n```\nz[7]\n```\nas said.",
            "Unclosed [1",
            "[[",
            "A fence\n```\nz[9] runs to the end",
            "é[",
        ] {
            let answer = checked(text);
            assert_eq!((answer.text.as_str(), answer.citations.len(), answer.invalid.len()), (text, 0, 0));
        }
        // A single backtick that is not closed is no code.
        assert_eq!(numbers(&checked("It`s so [1].")), [1]);
        assert_eq!(numbers(&checked("[[1]] and [ 2 ]")), [1, 2]);
    }

    #[test]
    fn an_answer_of_nothing_but_markers_costs_little() {
        let passage = "the the word. ".repeat(5_000);
        let answer = "the [1]".repeat(30_000);
        let begun = std::time::Instant::now();
        let checked = check(&answer, &[&passage]);
        assert_eq!(checked.citations.len(), 30_000);
        assert!(checked.citations[0].quote.is_some() && checked.citations[QUOTED].quote.is_none());
        assert!(begun.elapsed().as_secs() < 5);
        check(&"[".repeat(200_000), &[&passage]);
        check(&"`".repeat(200_001), &[&passage]);
        check(&"` ``".repeat(50_000), &[&passage]);
        assert!(begun.elapsed().as_secs() < 10);
    }
}
