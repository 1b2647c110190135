//! Tests of splitting again after an edit.

use super::*;
use crate::chunk::tests::{check, chunking, cut, marks, paragraph};
use crate::tokenizer::tests::wordpiece;
use fastrand::Rng;
use std::collections::HashSet;

/// Splits again as Markdown or as plain text.
fn recut(
    text: &str,
    chunking: &Chunking,
    tokenizer: &Tokenizer,
    markdown: bool,
    previous: &[PreviousChunk],
    bounds: &Bounds,
) -> Result<Vec<Chunk>> {
    rechunk(text, chunking, tokenizer, &marks(text, markdown), previous, bounds)
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

fn hashes(chunks: &[Chunk]) -> HashSet<[u8; 32]> {
    chunks.iter().map(Chunk::hash).collect()
}

fn paragraphs(random: &mut Rng, count: usize, words: usize) -> Vec<String> {
    (0..count)
        .map(|i| {
            let length = 1 + random.usize(..words);
            format!("P{i} {}", paragraph(random, length))
        })
        .collect()
}

#[test]
fn an_edited_paragraph_changes_at_most_three_chunks_of_a_thousand() {
    let words = Tokenizer::words();
    for (seed, strategy, overlap, most_words, longest) in [
        (1, Strategy::Recursive, 0, 60, 100),
        (2, Strategy::Recursive, 15, 60, 100),
        (3, Strategy::Recursive, 15, 12, 100),
        (4, Strategy::Markdown, 0, 60, 100),
        (5, Strategy::Markdown, 15, 30, 100),
        // Each paragraph has several chunks, so the edited text itself has more than one.
        (6, Strategy::Recursive, 0, 120, 400),
        (7, Strategy::Recursive, 15, 120, 400),
        (8, Strategy::Markdown, 15, 120, 400),
        (9, Strategy::Rows, 0, 60, 100),
    ] {
        let mut random = Rng::with_seed(seed);
        let setting = chunking(strategy, 100, overlap, Unit::Tokens);
        let mut fresh = |name: &str| loop {
            let length = 1 + random.usize(..most_words);
            let text = format!("{name} {}", paragraph(&mut random, length));
            if words.count(&text, &Bounds::none()).unwrap() <= longest {
                return text;
            }
        };
        let mut parts: Vec<String> = (0..50).map(|i| fresh(&format!("P{i}"))).collect();
        let mut chunks = cut(&parts.join("\n\n"), &setting, &words, true, &Bounds::none()).unwrap();
        while chunks.len() < 1000 {
            let wanted = parts.len() * 1000 / chunks.len() + 10;
            parts.extend((parts.len()..wanted).map(|i| fresh(&format!("P{i}"))));
            chunks = cut(&parts.join("\n\n"), &setting, &words, true, &Bounds::none()).unwrap();
        }
        let mut most = 0;
        for round in 0..120usize {
            let at = match round {
                0 => 0,
                1 => parts.len() - 1,
                _ => round * 7919 % parts.len(),
            };
            let new = fresh(&format!("N{round}"));
            let (old, new) = match round % 3 {
                0 => (String::new(), new),
                1 => (parts.remove(at), String::new()),
                _ => (parts.remove(at), new),
            };
            if !new.is_empty() {
                parts.insert(at, new.clone());
            }
            let text = parts.join("\n\n");
            let edited = recut(&text, &setting, &words, true, &previous(&chunks), &Bounds::none()).unwrap();
            check(&text, &edited, &setting, &words);
            let more =
                |text: &str| words.count(text, &Bounds::none()).unwrap().saturating_sub(1) / setting.size;
            let limit = 3 + 2 * (more(&old) + more(&new));
            let (before, after) = (hashes(&chunks), hashes(&edited));
            for changed in [after.difference(&before).count(), before.difference(&after).count()] {
                assert!(changed <= limit, "seed {seed}, edit {round}: {changed} of at most {limit}");
                most = most.max(changed);
            }
            chunks = edited;
        }
        assert!(most > 0);
    }
}

#[test]
fn any_edit_at_all_keeps_every_promise() {
    let tokenizers = [Tokenizer::words(), wordpiece(), Tokenizer::tiktoken("cl100k_base").unwrap()];
    let mut random = Rng::with_seed(42);
    for round in 0..400 {
        let tokenizer = &tokenizers[round % 3];
        let strategy =
            [Strategy::Recursive, Strategy::Markdown, Strategy::Fixed, Strategy::None, Strategy::Rows]
                [random.usize(..5)];
        let other = if strategy == Strategy::Rows { Unit::Rows } else { Unit::Characters };
        let unit = [Unit::Tokens, other][random.usize(..2)];
        let size = 1 + random.usize(..60);
        let setting = chunking(strategy, size, random.usize(..size), unit);
        // The texts have little variety, so that runs of equal chunks test whether the two ends cross.
        let count = random.usize(..20);
        let mut text: Vec<char> = match random.usize(..2) {
            0 => paragraphs(&mut random, count, 12).join("\n\n").chars().collect(),
            _ => "again and again\n\n".repeat(count).chars().collect(),
        };
        let mut chunks =
            cut(&text.iter().collect::<String>(), &setting, tokenizer, true, &Bounds::none()).unwrap();
        for _ in 0..5 {
            let from = [0, text.len(), random.usize(..text.len() + 1)][random.usize(..3)];
            let to = (from + [0, 1, random.usize(..80)][random.usize(..3)]).min(text.len());
            let insert =
                ["", " ", "\n\n", "x", "again and again\n\n", "```\n", "# H\n\nnew 漢字", "\n\"a\n,\""]
                    [random.usize(..8)];
            text.splice(from..to, insert.chars());
            let edited: String = text.iter().collect();
            chunks = recut(&edited, &setting, tokenizer, true, &previous(&chunks), &Bounds::none()).unwrap();
            check(&edited, &chunks, &setting, tokenizer);
        }
    }
}

#[test]
fn an_unchanged_text_and_one_with_other_white_space_at_its_end_keep_all_chunks() {
    let mut random = Rng::with_seed(8);
    let words = Tokenizer::words();
    for overlap in [0, 12] {
        let setting = chunking(Strategy::Recursive, 80, overlap, Unit::Tokens);
        let text = paragraphs(&mut random, 60, 40).join("\n\n");
        let chunks = cut(&text, &setting, &words, false, &Bounds::none()).unwrap();
        for edited in [text.clone(), format!("{text}\n"), format!("{text} \n\n\t")] {
            assert_eq!(
                recut(&edited, &setting, &words, false, &previous(&chunks), &Bounds::none()).unwrap(),
                chunks
            );
        }
        // The edit is at the start, and the white space at the end differs, too.
        let edited = format!("N {text}\n\n");
        let again = recut(&edited, &setting, &words, false, &previous(&chunks), &Bounds::none()).unwrap();
        assert!(hashes(&again).difference(&hashes(&chunks)).count() <= 2);
    }
}

#[test]
fn replacing_a_word_by_one_of_the_same_length_moves_no_boundary() {
    let words = Tokenizer::words();
    let text = (0..400).map(|i| format!("Sentence {i} has a word here.")).collect::<Vec<_>>().join("\n\n");
    for strategy in [Strategy::Recursive, Strategy::Markdown] {
        let setting = chunking(strategy, 40, 15, Unit::Tokens);
        let chunks = cut(&text, &setting, &words, false, &Bounds::none()).unwrap();
        for i in [0, 7, 200, 201, 202, 203, 204, 399] {
            let edited = text.replace(&format!("{i} has a word"), &format!("{i} had a word"));
            let again = recut(&edited, &setting, &words, false, &previous(&chunks), &Bounds::none()).unwrap();
            let spans = |chunks: &[Chunk]| chunks.iter().map(|c| c.span).collect::<Vec<_>>();
            assert_eq!(spans(&again), spans(&chunks), "{strategy:?} {i}");
        }
    }
}

#[test]
fn removing_repetitions_does_not_make_the_two_runs_overlap() {
    let words = Tokenizer::words();
    let text = |count: usize| "again and again.\n\n".repeat(count);
    for strategy in [Strategy::Recursive, Strategy::Markdown, Strategy::Fixed] {
        for overlap in [0, 2] {
            let setting = chunking(strategy, 4, overlap, Unit::Tokens);
            for (before, after) in [(10, 7), (10, 1), (10, 5), (3, 10), (10, 11)] {
                let chunks = cut(&text(before), &setting, &words, false, &Bounds::none()).unwrap();
                let again = recut(&text(after), &setting, &words, false, &previous(&chunks), &Bounds::none())
                    .unwrap();
                check(&text(after), &again, &setting, &words);
            }
        }
    }
}

#[test]
fn chunks_of_another_text_do_no_harm() {
    let words = Tokenizer::words();
    let setting = chunking(Strategy::Recursive, 5, 2, Unit::Tokens);
    let stray = |content: &str, start: usize, end: usize| PreviousChunk {
        content: content.into(),
        start,
        end,
        token_count: 1,
    };
    let text = "one two three four five six seven eight";
    for wrong in [
        vec![stray("one", 900, 903)],
        vec![stray("eight", 34, 39), stray("one", 0, 3)],
        vec![stray("two", 4, 7), stray("two", 4, 7), stray("", 0, 0)],
    ] {
        let chunks = recut(text, &setting, &words, false, &wrong, &Bounds::none()).unwrap();
        let joined: Vec<String> = chunks.iter().map(|c| c.content.clone()).collect();
        assert!(joined.join(" ").contains("one two") && joined.join(" ").contains("eight"), "{joined:?}");
    }
    assert_eq!(recut("", &setting, &words, false, &[stray("a", 0, 1)], &Bounds::none()).unwrap(), []);
}

#[test]
fn small_remainders_of_repeated_edits_do_not_add_up() {
    let words = Tokenizer::words();
    let mut random = Rng::with_seed(21);
    let setting = chunking(Strategy::Recursive, 100, 0, Unit::Tokens);
    let mut parts = paragraphs(&mut random, 200, 30);
    let mut chunks = cut(&parts.join("\n\n"), &setting, &words, false, &Bounds::none()).unwrap();
    for round in 0..200 {
        parts.insert(100, format!("N{round} some short words"));
        chunks =
            recut(&parts.join("\n\n"), &setting, &words, false, &previous(&chunks), &Bounds::none()).unwrap();
    }
    let fresh = cut(&parts.join("\n\n"), &setting, &words, false, &Bounds::none()).unwrap();
    assert!(chunks.len() <= fresh.len() * 5 / 4, "{} chunks, cut afresh {}", chunks.len(), fresh.len());
}

#[test]
fn an_edited_short_text_is_split_as_if_it_were_new() {
    let (words, none) = (Tokenizer::words(), Bounds::none());
    let setting = chunking(Strategy::Recursive, 100, 15, Unit::Tokens);
    let texts =
        ["The body of it.", "Title: The body of it.", "Title: The body.", "The body of it. At last.", "It."];
    for before in texts {
        let old = previous(&cut(before, &setting, &words, false, &none).unwrap());
        for after in texts {
            let again = recut(after, &setting, &words, false, &old, &none).unwrap();
            assert_eq!(
                hashes(&again),
                hashes(&cut(after, &setting, &words, false, &none).unwrap()),
                "{before:?}, then {after:?}"
            );
        }
    }
}
