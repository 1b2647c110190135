//! From a document to chunks: parse, chunk, diff, batch. Pure.

pub mod batch;
pub mod chunk;
pub mod diff;
pub mod parse;
#[cfg(feature = "server")]
pub mod put;
pub mod rechunk;
#[cfg(feature = "server")]
pub mod wait;

use crate::error::{Error, Result};
use crate::model::{Chunk, Chunking, Preprocess};
use crate::tokenizer::Tokenizer;
use parse::{ContentType, Extracted};

/// A document's source text, extracted and cut. Errors name the document.
pub fn prepare(
    external_id: &str,
    source: &str,
    content_type: ContentType,
    preprocess: &Preprocess,
    chunking: &Chunking,
    tokenizer: &Tokenizer,
) -> Result<(Extracted, Vec<Chunk>)> {
    let extracted = parse::extract(source, content_type, preprocess).map_err(|error| match error {
        Error::Argument { problem, .. } => Error::Document { external_id: external_id.to_string(), problem },
        other => other,
    })?;
    let chunks = chunk::chunk(&extracted.text, chunking, tokenizer, extracted.markdown)?;
    Ok((extracted, chunks))
}
