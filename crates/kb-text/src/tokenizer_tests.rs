//! Tests of counting and locating tokens.

use super::*;
use kb_types::EmbedderConfig;

fn count(tokenizer: &Tokenizer, text: &str) -> usize {
    tokenizer.count(text, &Bounds::none()).unwrap()
}

/// The ranges of the tokens of a text.
fn tokens(tokenizer: &Tokenizer, text: &str) -> Vec<Range<usize>> {
    tokenizer.located(text, &Bounds::none()).unwrap().0
}

fn spans(tokenizer: &Tokenizer, text: &str) -> Vec<Range<usize>> {
    disjoint(&tokens(tokenizer, text))
}

fn embedder(provider: &str) -> Embedder {
    let config = EmbedderConfig { max_input_tokens: Some(7), ..EmbedderConfig::default() };
    Embedder {
        id: "e".into(),
        provider: provider.into(),
        model: "m".into(),
        dimension: 4,
        base_url: None,
        config,
    }
}

/// A WordPiece file with truncation and padding, as downloaded files often have.
fn wordpiece_json() -> String {
    let vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "hello", "world", "##s", "un", "##break", "##able", "."];
    let vocab: serde_json::Map<String, serde_json::Value> =
        vocab.iter().enumerate().map(|(i, w)| (w.to_string(), i.into())).collect();
    serde_json::json!({
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0},
        "padding": {"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": null,
                    "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"},
        "added_tokens": [],
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                       "strip_accents": null, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": null,
        "decoder": null,
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": vocab}
    })
    .to_string()
}

pub fn wordpiece() -> Tokenizer {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokenizer.json");
    std::fs::write(&path, wordpiece_json()).unwrap();
    Tokenizer::from_file(&path, "m").unwrap()
}

#[test]
fn truncation_and_padding_in_the_file_do_not_change_counts() {
    assert_eq!(count(&wordpiece(), "Hello worlds."), 4);
    assert_eq!(count(&wordpiece(), "hello unbreakable hello hello"), 6);
}

#[test]
fn spans_are_disjoint_on_character_boundaries_and_cover_what_prints() {
    let text = "Hëllo  wörld\n\nnaïve 🦀🦀👩‍👩‍👧 漢字かな, unbreakable.";
    for tokenizer in [wordpiece(), Tokenizer::tiktoken("cl100k_base").unwrap(), Tokenizer::words()] {
        let spans = spans(&tokenizer, text);
        let mut end = 0;
        for span in &spans {
            assert!(span.start >= end && span.end > span.start, "{spans:?}");
            assert!(text[end..span.start].trim().is_empty(), "{:?}", &text[end..span.start]);
            end = span.end;
            let _ = &text[span.clone()];
        }
        assert_eq!(end, text.len());
        assert_eq!(tokens(&tokenizer, text).len(), count(&tokenizer, text));
    }
}

#[test]
fn words_are_runs_of_letters_and_single_characters() {
    let texts: Vec<&str> =
        spans(&Tokenizer::words(), "a b12, (c)é!").into_iter().map(|r| &"a b12, (c)é!"[r]).collect();
    assert_eq!(texts, ["a", "b12", ",", "(", "c", ")", "é", "!"]);
}

#[test]
fn a_long_text_has_the_tokens_of_its_parts() {
    let line = "The quick brown fox jumps over the lazy dog, again and again.\n";
    for tokenizer in [Tokenizer::tiktoken("gpt-4o").unwrap(), Tokenizer::words(), wordpiece()] {
        let one = count(&tokenizer, line);
        let text = line.repeat(4000);
        assert_eq!(count(&tokenizer, &text), 4000 * one);
        let tokens = tokens(&tokenizer, &text);
        assert_eq!(tokens.len(), 4000 * one);
        assert!(tokens.last().unwrap().end >= text.trim_end().len());
    }
}

#[test]
fn endless_white_space_or_one_endless_word_is_tokenised() {
    let tokenizer = Tokenizer::tiktoken("cl100k_base").unwrap();
    assert!(count(&tokenizer, &" ".repeat(3_000_000)) > 0);
    assert!(count(&tokenizer, &"é".repeat(200_000)) > 1000);
}

#[test]
fn openai_names_are_known_and_others_are_not() {
    for name in ["text-embedding-3-small", "gpt-4o", "cl100k_base", "o200k_base"] {
        assert!(is_tiktoken(name), "{name}");
    }
    assert!(!is_tiktoken("all-MiniLM-L6-v2"));
    assert!(Tokenizer::tiktoken("nope").is_err());
    assert_eq!(count(&Tokenizer::tiktoken("gpt-4o").unwrap(), "hello world"), 2);
}

#[test]
fn an_embedder_has_its_providers_tokeniser_and_limit() {
    let dir = Path::new("/nonexistent");
    let words = Tokenizer::for_embedder(&embedder("hash"), dir).unwrap();
    assert_eq!(count(&words, "a b"), 2);
    // A model that tiktoken does not know is counted by a vocabulary that it knows.
    let other = Tokenizer::for_embedder(&embedder("cohere"), dir).unwrap();
    assert_eq!(count(&other, "hello world"), 2);
    assert_eq!(max_content_tokens(&embedder("hash"), dir), Ok(Some(7)));
    let mut unlimited = embedder("hash");
    unlimited.config.max_input_tokens = None;
    assert_eq!(max_content_tokens(&unlimited, dir), Ok(None));
}

#[test]
fn only_tokenisers_that_read_words_apart_are_said_to() {
    let text = "Hëllo  wörlds\n\tunbreakable hello, (world).  un break\u{85}able É\u{301} [SEP] hello";
    for tokenizer in [wordpiece(), Tokenizer::words()] {
        assert!(tokenizer.reads_by_words(text));
        let tokens = tokens(&tokenizer, text);
        let edges: Vec<usize> = (0..=text.len()).filter(|at| is_beside_space(text, *at)).collect();
        for start in &edges {
            for end in edges.iter().filter(|end| *end >= start) {
                let inside = tokens.iter().filter(|token| (*start..*end).contains(&token.start)).count();
                assert_eq!(inside, count(&tokenizer, &text[*start..*end]), "{:?}", &text[*start..*end]);
            }
        }
        // The text is longer than a piece, which ends inside a word.
        assert!(!tokenizer.reads_by_words(&"x".repeat(2 * PIECE)));
        assert!(tokenizer.reads_by_words(&"hello world ".repeat(PIECE)));
    }
    assert!(!Tokenizer::tiktoken("cl100k_base").unwrap().reads_by_words(text));
}

#[test]
fn a_refused_text_is_not_said_to_have_the_tokens_of_its_words() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokenizer.json");
    // The vocabulary lacks the token for unknown words.
    std::fs::write(&path, wordpiece_json().replace("\"unk_token\":\"[UNK]\"", "\"unk_token\":\"[NONE]\""))
        .unwrap();
    let tokenizer = Tokenizer::from_file(&path, "m").unwrap();
    let by_words = |text: &str| tokenizer.located(text, &Bounds::none()).unwrap().1;
    assert!(by_words("hello world") && !by_words("hello unheard world"));
}
