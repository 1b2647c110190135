//! Converts texts to token ids by the model's own tokeniser, under kb's limit of length.

use kb_text::model_files::ModelFiles;
use kb_text::tokenizer::pieces;
use kb_types::error::{Error, Result};
use kb_types::{Embedder, Kind};
use std::path::Path;
use tokenizers::{Encoding, Tokenizer};

/// About how many bytes are tokenised at a time. An encoding takes about 260 bytes for each byte of the text.
const GROUP: usize = 128 * 1024;

pub struct Tokens {
    tokenizer: Tokenizer,
    /// Whether special tokens are put around every text (BERT's [CLS] and [SEP]).
    special: bool,
    opening: Vec<u32>,
    closing: Vec<u32>,
    /// The most tokens, special tokens included.
    pub limit: Option<usize>,
    truncate: bool,
    model: String,
}

impl Tokens {
    pub fn load(embedder: &Embedder, files: &ModelFiles) -> Result<Tokens> {
        let tokenizer = open_tokenizer(&files.tokenizer)
            .map_err(|problem| Error::ModelFiles { model: embedder.model.clone(), problem })?;
        let special = tokenizer.encode_fast("", true).map_or(0, |encoding| encoding.len());
        if files.special_tokens > 0 && special != files.special_tokens {
            return Err(Error::ModelFiles {
                model: embedder.model.clone(),
                problem: format!(
                    "tokenizer.json adds {special} special tokens to a text, but the model's architecture requires {}",
                    files.special_tokens
                ),
            });
        }
        let (opening, closing) = around(&tokenizer);
        Ok(Tokens {
            tokenizer,
            special: files.special_tokens > 0,
            opening,
            closing,
            limit: least(files.max_tokens, embedder.config.max_input_tokens),
            truncate: embedder.config.truncate,
            model: embedder.model.clone(),
        })
    }

    /// The ids of each text with its prefix, never more than the limit. Only the beginning of a longer text
    /// is tokenised, so that memory does not grow with it.
    pub fn encode(&self, embedder: &Embedder, texts: &[String], kind: Kind) -> Result<Vec<Vec<u32>>> {
        let prefix = embedder.prefix(kind);
        let fault = |e: tokenizers::Error| Error::Embedding {
            embedder: embedder.id.clone(),
            problem: format!("a text cannot be tokenised: {e}"),
        };
        let mut all = Vec::with_capacity(texts.len());
        let mut group: Vec<String> = Vec::new();
        let mut bytes = 0;
        let mut rest = texts.iter().map(|text| format!("{prefix}{text}")).peekable();
        while let Some(input) = rest.next() {
            if pieces(&input).nth(1).is_some() {
                all.push(self.encode_long(&input, fault)?);
                continue;
            }
            bytes += input.len();
            group.push(input);
            let ends =
                rest.peek().is_none_or(|next| bytes + next.len() > GROUP || pieces(next).nth(1).is_some());
            if ends {
                let inputs = std::mem::take(&mut group);
                bytes = 0;
                let encodings = self.tokenizer.encode_batch_fast(inputs, self.special).map_err(fault)?;
                for encoding in &encodings {
                    all.push(self.fit(encoding)?);
                }
            }
        }
        Ok(all)
    }

    /// The ids of one text, truncated to the limit if that is allowed.
    fn fit(&self, encoding: &Encoding) -> Result<Vec<u32>> {
        let ids = encoding.get_ids();
        let limit = self.limit.unwrap_or(usize::MAX);
        if ids.len() <= limit {
            return Ok(ids.to_vec());
        }
        if !self.truncate {
            return Err(self.too_long(ids.len()));
        }
        // The text is truncated and the closing special tokens are kept, as in sentence-transformers.
        let mask = encoding.get_special_tokens_mask();
        let closing = mask.iter().rev().take_while(|m| **m == 1).count().min(limit);
        Ok([&ids[..limit - closing], &ids[ids.len() - closing..]].concat())
    }

    /// Like [`Tokens::fit`], but piece by piece until the limit is exceeded.
    fn encode_long(&self, text: &str, fault: impl Fn(tokenizers::Error) -> Error) -> Result<Vec<u32>> {
        let (opening, closing) = match self.special {
            true => (&self.opening[..], &self.closing[..]),
            false => (&[][..], &[][..]),
        };
        let limit = self.limit.unwrap_or(usize::MAX);
        let mut ids = opening.to_vec();
        for piece in pieces(text) {
            ids.extend(self.tokenizer.encode_fast(&text[piece], false).map_err(&fault)?.get_ids());
            if ids.len() + closing.len() <= limit {
                continue;
            }
            if !self.truncate {
                return Err(self.too_long(ids.len() + closing.len()));
            }
            ids.truncate(limit.saturating_sub(closing.len()));
            break;
        }
        ids.extend(&closing[..closing.len().min(limit)]);
        Ok(ids)
    }

    fn too_long(&self, tokens: usize) -> Error {
        let limit = self.limit.unwrap_or(usize::MAX);
        Error::InputTooLong { model: self.model.clone(), tokens, limit }
    }

    pub fn id_of(&self, token: &str) -> Option<u32> {
        self.tokenizer.token_to_id(token)
    }
}

/// Opens a tokeniser without the truncation and padding of the file (to 128 tokens for MiniLM), which would
/// truncate texts silently.
pub fn open_tokenizer(path: &Path) -> Result<Tokenizer, String> {
    let mut tokenizer =
        Tokenizer::from_file(path).map_err(|e| format!("tokenizer.json cannot be used: {e}"))?;
    tokenizer.with_padding(None);
    let _ = tokenizer.with_truncation(None);
    Ok(tokenizer)
}

/// The first ids of a text, without special tokens. No more of the text is tokenised than necessary.
pub fn limited(tokenizer: &Tokenizer, text: &str, most: usize) -> tokenizers::Result<Vec<u32>> {
    let mut ids = Vec::new();
    for piece in pieces(text) {
        ids.extend(tokenizer.encode_fast(&text[piece], false)?.get_ids());
        if ids.len() >= most {
            break;
        }
    }
    ids.truncate(most);
    Ok(ids)
}

/// The special tokens before and after a text.
pub fn around(tokenizer: &Tokenizer) -> (Vec<u32>, Vec<u32>) {
    let Ok(encoding) = tokenizer.encode("a", true) else { return Default::default() };
    let (ids, mask) = (encoding.get_ids(), encoding.get_special_tokens_mask());
    let opening = mask.iter().take_while(|m| **m == 1).count();
    let closing = mask[opening..].iter().rev().take_while(|m| **m == 1).count();
    (ids[..opening].to_vec(), ids[ids.len() - closing..].to_vec())
}

/// The smaller of two limits, where None means no limit.
pub fn least(a: Option<usize>, b: Option<usize>) -> Option<usize> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
