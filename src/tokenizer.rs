//! Counts and locates tokens: a model's own tokeniser, tiktoken for OpenAI's names, or plain words.

use crate::error::{Error, Result};
use crate::model::{Bounds, Chunking, Embedder};
use crate::model_files::ModelFiles;
use crate::sync::lock;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};
use tiktoken_rs::CoreBPE;
use tiktoken_rs::tokenizer::{Tokenizer as Encoding, get_tokenizer};

/// Cuts texts into the tokens a model reads.
pub enum Tokenizer {
    /// A Hugging Face tokenizer.json.
    HuggingFace(Box<tokenizers::Tokenizer>),
    /// OpenAI's; the vocabulary is compiled in.
    Tiktoken(&'static CoreBPE),
    /// A token is a run of alphanumeric characters or one other character that is no white space.
    Words,
}

/// Longer texts are tokenised in pieces of at most so many bytes: tokenisers are not linear on
/// texts of many megabytes, and tiktoken's regex gives up (panics) on very long white space.
const PIECE: usize = 32 * 1024;
/// Work of tokenising a byte: some ten times that of reading it.
const WORK: usize = 8;

/// Encoding names of OpenAI; models are known to tiktoken-rs itself.
fn encoding(name: &str) -> Option<Encoding> {
    match name {
        "o200k_harmony" => Some(Encoding::O200kHarmony),
        "o200k_base" => Some(Encoding::O200kBase),
        "cl100k_base" => Some(Encoding::Cl100kBase),
        "p50k_base" => Some(Encoding::P50kBase),
        "p50k_edit" => Some(Encoding::P50kEdit),
        "r50k_base" => Some(Encoding::R50kBase),
        model => get_tokenizer(model),
    }
}

/// Whether tiktoken has the vocabulary of this OpenAI model or encoding.
pub fn is_tiktoken(name: &str) -> bool {
    encoding(name).is_some()
}

/// Tokenisers already opened, by path or name. Few in any one process, so never evicted.
static OPENED: LazyLock<Mutex<HashMap<String, Arc<Tokenizer>>>> = LazyLock::new(Mutex::default);

fn cached(key: String, open: impl FnOnce() -> Result<Tokenizer>) -> Result<Arc<Tokenizer>> {
    if let Some(found) = lock(&OPENED).get(&key) {
        return Ok(found.clone());
    }
    let opened = Arc::new(open()?);
    Ok(lock(&OPENED).entry(key).or_insert(opened).clone())
}

impl Tokenizer {
    /// Opens a tokenizer.json. `model` is named in errors.
    pub fn from_file(path: &Path, model: &str) -> Result<Tokenizer> {
        let fault = |e: String| Error::ModelFiles {
            model: model.to_string(),
            problem: format!("tokenizer.json cannot be used: {e}"),
        };
        let mut inner = tokenizers::Tokenizer::from_file(path).map_err(|e| fault(e.to_string()))?;
        // Files often carry the truncation and padding of their training; counts must not.
        inner.with_truncation(None).map_err(|e| fault(e.to_string()))?;
        inner.with_padding(None);
        Ok(Tokenizer::HuggingFace(Box::new(inner)))
    }

    /// The tokeniser of an OpenAI model or encoding.
    pub fn tiktoken(name: &str) -> Result<Tokenizer> {
        let fault = |problem| Error::Argument { argument: "tokenizer", problem };
        let encoding = encoding(name).ok_or_else(|| {
            fault(format!("\"{name}\" is no model or encoding of OpenAI's that tiktoken knows"))
        })?;
        let bpe = tiktoken_rs::bpe_for_tokenizer(encoding).map_err(|e| fault(e.to_string()))?;
        Ok(Tokenizer::Tiktoken(bpe))
    }

    pub fn words() -> Tokenizer {
        Tokenizer::Words
    }

    /// The tokeniser of an embedder's model; `model_dir` holds the local models.
    pub fn for_embedder(embedder: &Embedder, model_dir: &Path) -> Result<Arc<Tokenizer>> {
        match embedder.provider.as_str() {
            "local" => {
                let files = ModelFiles::open(model_dir, &embedder.model)?;
                cached(files.tokenizer.display().to_string(), || {
                    Tokenizer::from_file(&files.tokenizer, &embedder.model)
                })
            }
            "hash" => cached("words".to_string(), || Ok(Tokenizer::Words)),
            // OpenAI's own are exact; for others cl100k_base is near, and chunking can name another.
            _ => {
                let name = if is_tiktoken(&embedder.model) { &embedder.model } else { "cl100k_base" };
                cached(format!("tiktoken {name}"), || Tokenizer::tiktoken(name))
            }
        }
    }

    /// The tokeniser that sizes chunks: the one named in `chunking`, else the embedder's.
    pub fn for_chunking(
        chunking: &Chunking,
        embedder: &Embedder,
        model_dir: &Path,
    ) -> Result<Arc<Tokenizer>> {
        match &chunking.tokenizer {
            Some(name) => cached(format!("tiktoken {name}"), || Tokenizer::tiktoken(name)),
            None => Tokenizer::for_embedder(embedder, model_dir),
        }
    }

    /// Tokens in `text`, special tokens not counted. Errors: `bounds`' own.
    pub fn count(&self, text: &str, bounds: &Bounds) -> Result<usize> {
        let mut count = 0;
        for piece in pieces(text) {
            bounds.spend(WORK * piece.len())?;
            count += self.count_piece(&text[piece]);
        }
        Ok(count)
    }

    fn count_piece(&self, text: &str) -> usize {
        match self {
            // A vocabulary without an unknown token refuses some texts. The model will refuse
            // them too; a count that is surely not too small keeps the chunker going until then.
            Tokenizer::HuggingFace(inner) => {
                inner.encode_fast(text, false).map_or_else(|_| text.chars().count(), |e| e.len())
            }
            Tokenizer::Tiktoken(bpe) => bpe.encode_ordinary(text).len(),
            Tokenizer::Words => words(text).count(),
        }
    }

    /// Every token's byte range in `text`, in order, widened to character boundaries. Tokens that
    /// share a character have ranges that overlap; `tokens(t).len() == count(t)`.
    pub(crate) fn tokens(&self, text: &str, bounds: &Bounds) -> Result<Vec<Range<usize>>> {
        let mut tokens = Vec::with_capacity(text.len() / 4);
        for piece in pieces(text) {
            bounds.spend(WORK * piece.len())?;
            self.push_tokens(&text[piece.clone()], piece.start, &mut tokens);
        }
        Ok(tokens)
    }

    fn push_tokens(&self, text: &str, offset: usize, tokens: &mut Vec<Range<usize>>) {
        let mut push = |range: Range<usize>| {
            let start = text.floor_char_boundary(range.start) + offset;
            let end = text.ceil_char_boundary(range.end) + offset;
            // Some normalisers reorder; searching needs the starts and the ends in order.
            let (least_start, least_end) = tokens.last().map_or((0, 0), |l| (l.start, l.end));
            tokens.push(start.max(least_start)..end.max(least_end));
        };
        match self {
            Tokenizer::HuggingFace(inner) => match inner.encode(text, false) {
                Ok(encoding) => encoding.get_offsets().iter().for_each(|&(s, e)| push(s..e)),
                Err(_) => text.char_indices().for_each(|(i, c)| push(i..i + c.len_utf8())),
            },
            Tokenizer::Tiktoken(bpe) => {
                let mut at = 0;
                for token in bpe.encode_ordinary(text) {
                    let bytes = bpe.decode_bytes(&[token]).map_or(0, |b| b.len());
                    push(at..at + bytes);
                    at += bytes;
                }
            }
            Tokenizer::Words => words(text).for_each(push),
        }
    }
}

/// Joins tokens that share a character, and drops those of none.
pub(crate) fn disjoint(tokens: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut spans: Vec<Range<usize>> = Vec::new();
    for token in tokens.iter().filter(|token| !token.is_empty()) {
        match spans.last_mut() {
            Some(last) if token.start < last.end => last.end = last.end.max(token.end),
            _ => spans.push(token.clone()),
        }
    }
    spans
}

/// What an embedder's model reads of one text, special tokens and the tokens of its document prefix
/// taken off; None: any length.
pub fn max_content_tokens(embedder: &Embedder, model_dir: &Path) -> Result<Option<usize>> {
    let configured = embedder.config.max_input_tokens;
    if embedder.provider != "local" {
        let prefix = match embedder.config.document_prefix.as_str() {
            "" => 0,
            prefix => Tokenizer::for_embedder(embedder, model_dir)?.count(prefix, &Bounds::none())?,
        };
        return Ok(configured.map(|limit| limit.saturating_sub(prefix).max(1)));
    }
    let files = ModelFiles::open(model_dir, &embedder.model)?;
    let limit = match (files.max_tokens, configured) {
        (Some(model), Some(configured)) => Some(model.min(configured)),
        (model, configured) => model.or(configured),
    };
    let prefix = match embedder.config.document_prefix.as_str() {
        "" => 0,
        prefix => Tokenizer::for_embedder(embedder, model_dir)?.count(prefix, &Bounds::none())?,
    };
    // One token at least, or no chunk could ever be made.
    Ok(limit.map(|limit| limit.saturating_sub(files.special_tokens + prefix).max(1)))
}

fn words(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let start = at;
            let c = text[start..].chars().next()?;
            at += c.len_utf8();
            if c.is_alphanumeric() {
                at += run(&text[at..]);
            } else if c.is_whitespace() {
                continue;
            }
            return Some(start..at);
        }
    })
}

/// Bytes of the letters and digits that a text begins with.
fn run(text: &str) -> usize {
    let ascii = text.bytes().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(text.len());
    match text.as_bytes().get(ascii) {
        Some(byte) if !byte.is_ascii() => text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len()),
        _ => ascii,
    }
}

/// Cuts a long text where no tokeniser joins what is on both sides: after a line break that a
/// printing character follows, else before a lone space, else anywhere between characters.
pub(crate) fn pieces(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        if start >= text.len() {
            return None;
        }
        let limit = text.floor_char_boundary(start + PIECE);
        let end = if limit == text.len() {
            limit
        } else {
            // Only the last quarter is searched, so that pieces stay long.
            let from = start + PIECE * 3 / 4;
            let bytes = text.as_bytes();
            (from..limit)
                .rev()
                .find(|&i| bytes[i - 1] == b'\n' && !bytes[i].is_ascii_whitespace())
                .or_else(|| {
                    let space = |i: &usize| bytes[*i] == b' ' && !bytes[i - 1].is_ascii_whitespace();
                    (from..limit).rev().find(space)
                })
                .unwrap_or(limit)
        };
        let piece = start..end;
        start = end;
        Some(piece)
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::model::EmbedderConfig;

    fn count(tokenizer: &Tokenizer, text: &str) -> usize {
        tokenizer.count(text, &Bounds::none()).unwrap()
    }

    fn spans(tokenizer: &Tokenizer, text: &str) -> Vec<Range<usize>> {
        disjoint(&tokenizer.tokens(text, &Bounds::none()).unwrap())
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

    /// A WordPiece file that carries truncation and padding, as downloaded ones often do.
    fn wordpiece_json() -> String {
        let vocab =
            ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "hello", "world", "##s", "un", "##break", "##able", "."];
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
            assert_eq!(tokenizer.tokens(text, &Bounds::none()).unwrap().len(), count(&tokenizer, text));
        }
    }

    #[test]
    fn words_are_runs_of_letters_and_single_signs() {
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
            let tokens = tokenizer.tokens(&text, &Bounds::none()).unwrap();
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
        // A provider's model that tiktoken does not know is counted by a vocabulary that it has.
        let other = Tokenizer::for_embedder(&embedder("cohere"), dir).unwrap();
        assert_eq!(count(&other, "hello world"), 2);
        assert_eq!(max_content_tokens(&embedder("hash"), dir), Ok(Some(7)));
        let mut unlimited = embedder("hash");
        unlimited.config.max_input_tokens = None;
        assert_eq!(max_content_tokens(&unlimited, dir), Ok(None));
    }
}
