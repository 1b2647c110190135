//! Counts and locates tokens by a model's own tokeniser, by tiktoken for OpenAI's models, or by words.

use crate::chunk_settings::Chunking;
use crate::model_files::ModelFiles;
use crate::vocabularies::vocabulary;
use kb_types::error::{Error, Result};
use kb_types::sync::lock;
use kb_types::{Bounds, Embedder};
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};
use tiktoken_rs::CoreBPE;
use tiktoken_rs::tokenizer::{Tokenizer as Encoding, get_tokenizer};
use tokenizers::{NormalizerWrapper, PreTokenizerWrapper};

/// Splits texts into the tokens that a model reads.
pub enum Tokenizer {
    /// A Hugging Face tokenizer.json.
    HuggingFace(Box<tokenizers::Tokenizer>),
    /// A tokeniser of OpenAI, whose vocabulary is compiled in.
    Tiktoken(&'static CoreBPE),
    /// A token is a run of alphanumeric characters, or one other character that is not white space.
    Words,
}

/// Longer texts are tokenised in pieces of at most this many bytes, because tokenisers are not linear for
/// texts of many megabytes and tiktoken's regex panics on very long white space.
const PIECE: usize = 32 * 1024;
/// The work of tokenising a byte, compared with reading it.
const WORK: usize = 8;

/// The names of OpenAI's encodings. tiktoken-rs knows the names of models.
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

/// The tokenisers that have been opened, by path or name. A process opens few, so none is evicted.
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
        // Files often have the truncation and padding of training, which would falsify counts.
        inner.with_truncation(None).map_err(|e| fault(e.to_string()))?;
        inner.with_padding(None);
        Ok(Tokenizer::HuggingFace(Box::new(inner)))
    }

    /// The tokeniser of an OpenAI model or encoding.
    pub fn tiktoken(name: &str) -> Result<Tokenizer> {
        let fault = |problem| Error::Argument { argument: "tokenizer", problem };
        let encoding = encoding(name).ok_or_else(|| {
            fault(format!("\"{name}\" is not an OpenAI model or encoding that tiktoken knows"))
        })?;
        Ok(Tokenizer::Tiktoken(vocabulary(encoding).map_err(fault)?))
    }

    pub fn words() -> Tokenizer {
        Tokenizer::Words
    }

    /// The tokeniser of an embedder's model. `model_dir` contains the local models.
    pub fn for_embedder(embedder: &Embedder, model_dir: &Path) -> Result<Arc<Tokenizer>> {
        match embedder.provider.as_str() {
            "local" => {
                let files = ModelFiles::open(model_dir, &embedder.model)?;
                cached(files.tokenizer.display().to_string(), || {
                    Tokenizer::from_file(&files.tokenizer, &embedder.model)
                })
            }
            "hash" => cached("words".to_string(), || Ok(Tokenizer::Words)),
            // For OpenAI's models the tokeniser is exact. For others cl100k_base is close, and chunking can
            // name another one.
            _ => {
                let name = if is_tiktoken(&embedder.model) { &embedder.model } else { "cl100k_base" };
                Tokenizer::of_openai(name)
            }
        }
    }

    /// The tokeniser of an OpenAI model or encoding, which is opened once in a process.
    pub fn of_openai(name: &str) -> Result<Arc<Tokenizer>> {
        cached(format!("tiktoken {name}"), || Tokenizer::tiktoken(name))
    }

    /// The tokeniser that sizes chunks: the one named in `chunking`, or else the embedder's.
    pub fn for_chunking(
        chunking: &Chunking,
        embedder: &Embedder,
        model_dir: &Path,
    ) -> Result<Arc<Tokenizer>> {
        match &chunking.tokenizer {
            Some(name) => Tokenizer::of_openai(name),
            None => Tokenizer::for_embedder(embedder, model_dir),
        }
    }

    /// The number of tokens in `text` without special tokens. Errors: those of `bounds`.
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
            // A vocabulary without an unknown token refuses some texts, as the model will. Until then a count
            // that is certainly not too small lets chunking continue.
            Tokenizer::HuggingFace(inner) => {
                inner.encode_fast(text, false).map_or_else(|_| text.chars().count(), |e| e.len())
            }
            Tokenizer::Tiktoken(bpe) => bpe.encode_ordinary(text).len(),
            Tokenizer::Words => words(text).count(),
        }
    }

    /// The byte range of every token in `text`, in order and widened to character boundaries, and whether
    /// text between ASCII white space has the same tokens by itself. The ranges of tokens that share a
    /// character overlap. There are as many as [`Tokenizer::count`] says.
    pub fn located(&self, text: &str, bounds: &Bounds) -> Result<(Vec<Range<usize>>, bool)> {
        let (mut tokens, mut by_words) = (Vec::with_capacity(text.len() / 4), self.reads_by_words(text));
        for piece in pieces(text) {
            bounds.spend(WORK * piece.len())?;
            by_words &= self.push_tokens(&text[piece.clone()], piece.start, &mut tokens);
        }
        Ok((tokens, by_words))
    }

    fn reads_by_words(&self, text: &str) -> bool {
        let by_words = match self {
            Tokenizer::HuggingFace(inner) => {
                // With these components, the tokens of a word do not depend on other words.
                let normalizer = inner.get_normalizer();
                let by_characters = matches!(normalizer, None | Some(NormalizerWrapper::BertNormalizer(_)));
                by_characters
                    && matches!(inner.get_pre_tokenizer(), Some(PreTokenizerWrapper::BertPreTokenizer(_)))
            }
            Tokenizer::Tiktoken(_) => false,
            Tokenizer::Words => true,
        };
        by_words && pieces(text).all(|piece| is_beside_space(text, piece.start))
    }

    /// Adds the tokens of a text. Returns whether the tokeniser accepted it.
    fn push_tokens(&self, text: &str, offset: usize, tokens: &mut Vec<Range<usize>>) -> bool {
        let mut push = |range: Range<usize>| {
            let start = text.floor_char_boundary(range.start) + offset;
            let end = text.ceil_char_boundary(range.end) + offset;
            // Some normalisers reorder characters, but searching needs starts and ends in order.
            let (least_start, least_end) = tokens.last().map_or((0, 0), |l| (l.start, l.end));
            tokens.push(start.max(least_start)..end.max(least_end));
        };
        match self {
            Tokenizer::HuggingFace(inner) => match inner.encode(text, false) {
                Ok(encoding) => encoding.get_offsets().iter().for_each(|&(s, e)| push(s..e)),
                Err(_) => {
                    text.char_indices().for_each(|(i, c)| push(i..i + c.len_utf8()));
                    return false;
                }
            },
            Tokenizer::Tiktoken(bpe) => {
                let mut at = 0;
                for token in bpe.encode_ordinary(text) {
                    let bytes = bpe.decode_bytes(&[token]).map_or(0, |b| b.len());
                    push(at..at + bytes);
                    at += bytes;
                }
            }
            Tokenizer::Words => {
                tokens.extend(words(text).map(|word| word.start + offset..word.end + offset));
            }
        }
        true
    }
}

/// Joins tokens that share a character, and drops empty ones.
pub fn disjoint(tokens: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut spans: Vec<Range<usize>> = Vec::new();
    for token in tokens.iter().filter(|token| !token.is_empty()) {
        match spans.last_mut() {
            Some(last) if token.start < last.end => last.end = last.end.max(token.end),
            _ => spans.push(token.clone()),
        }
    }
    spans
}

/// How many tokens of one text an embedder's model reads, without special tokens and the tokens of its
/// document prefix. None means any length.
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
    // At least one token, because otherwise no chunk could be made.
    Ok(limit.map(|limit| limit.saturating_sub(files.special_tokens + prefix).max(1)))
}

/// Whether there is ASCII white space on one side of this place, or the place is at the start or end of the
/// text.
pub fn is_beside_space(text: &str, at: usize) -> bool {
    let is_space = |byte: Option<&u8>| byte.is_none_or(|byte| matches!(byte, b' ' | b'\n' | b'\r' | b'\t'));
    let before = at.checked_sub(1).and_then(|before| text.as_bytes().get(before));
    is_space(before) || is_space(text.as_bytes().get(at))
}

fn words(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let start = at;
            let first = *text.as_bytes().get(start)?;
            let c = if first.is_ascii() { first.into() } else { text[start..].chars().next()? };
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

/// How many bytes of letters and digits a text begins with.
fn run(text: &str) -> usize {
    let ascii = text.bytes().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(text.len());
    match text.as_bytes().get(ascii) {
        Some(byte) if !byte.is_ascii() => text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len()),
        _ => ascii,
    }
}

/// Splits a long text where tokenisers do not join both sides: after a line break that a printing character
/// follows, or else before a single space, or else anywhere between characters.
pub fn pieces(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        if start >= text.len() {
            return None;
        }
        let limit = text.floor_char_boundary(start + PIECE);
        let end = if limit == text.len() {
            limit
        } else {
            // Only the last quarter is searched, so that pieces are long.
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
#[path = "tokenizer_tests.rs"]
pub mod tests;
