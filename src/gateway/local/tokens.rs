//! Texts to token ids: a model's own tokeniser under kb's length limit.

use crate::error::{Error, Result};
use crate::model::{Embedder, Kind};
use crate::model_files::ModelFiles;
use tokenizers::Tokenizer;

pub struct Tokens {
    tokenizer: Tokenizer,
    /// Put around every text (BERT's [CLS] and [SEP]).
    special: bool,
    /// Special tokens included.
    pub limit: Option<usize>,
    truncate: bool,
    model: String,
}

impl Tokens {
    pub fn load(embedder: &Embedder, files: &ModelFiles) -> Result<Tokens> {
        let mut tokenizer = Tokenizer::from_file(&files.tokenizer).map_err(|e| Error::ModelFiles {
            model: embedder.model.clone(),
            problem: format!("tokenizer.json cannot be used: {e}"),
        })?;
        // The file's own settings (MiniLM's cut at 128 and pad to 128) would cut texts silently.
        tokenizer.with_padding(None);
        let _ = tokenizer.with_truncation(None);
        let special = tokenizer.encode_fast("", true).map_or(0, |encoding| encoding.len());
        if files.special_tokens > 0 && special != files.special_tokens {
            return Err(Error::ModelFiles {
                model: embedder.model.clone(),
                problem: format!(
                    "tokenizer.json puts {special} special tokens around a text where its architecture has {}",
                    files.special_tokens
                ),
            });
        }
        Ok(Tokens {
            tokenizer,
            special: files.special_tokens > 0,
            limit: least(files.max_tokens, embedder.config.max_input_tokens),
            truncate: embedder.config.truncate,
            model: embedder.model.clone(),
        })
    }

    /// Ids of each text with its prefix, never more than the limit.
    pub fn encode(&self, embedder: &Embedder, texts: &[String], kind: Kind) -> Result<Vec<Vec<u32>>> {
        let prefix = embedder.prefix(kind);
        let inputs: Vec<String> = texts.iter().map(|text| format!("{prefix}{text}")).collect();
        let encodings =
            self.tokenizer.encode_batch_fast(inputs, self.special).map_err(|e| Error::Embedding {
                embedder: embedder.id.clone(),
                problem: format!("a text cannot be tokenised: {e}"),
            })?;
        encodings
            .iter()
            .map(|encoding| {
                let ids = encoding.get_ids();
                let limit = self.limit.unwrap_or(usize::MAX);
                if ids.len() <= limit {
                    return Ok(ids.to_vec());
                }
                if !self.truncate {
                    return Err(Error::InputTooLong { model: self.model.clone(), tokens: ids.len(), limit });
                }
                // As sentence-transformers does: the text is cut, the closing special tokens stay.
                let mask = encoding.get_special_tokens_mask();
                let closing = mask.iter().rev().take_while(|m| **m == 1).count().min(limit);
                Ok([&ids[..limit - closing], &ids[ids.len() - closing..]].concat())
            })
            .collect()
    }

    /// Without special tokens.
    pub fn count(&self, text: &str) -> usize {
        // Only a tokeniser without an unknown token can fail on a text; counting bytes is then safe.
        self.tokenizer.encode_fast(text, false).map_or(text.len(), |encoding| encoding.len())
    }

    pub fn id_of(&self, token: &str) -> Option<u32> {
        self.tokenizer.token_to_id(token)
    }
}

/// The smaller of two limits, None being no limit.
pub fn least(a: Option<usize>, b: Option<usize>) -> Option<usize> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
