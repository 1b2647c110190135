//! kb.chunk: what a chunking setting does to a text.

use super::{required, value};
use crate::error::Error;
use crate::ingest::parse::ContentType;
use crate::model::{Bounds, Chunking, Preprocess};
use crate::pg::json::Jsonb;
use crate::pg::report;
use crate::store::embedders;
use crate::tokenizer::{Tokenizer, max_content_tokens};
use crate::{ingest, settings};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(stable, parallel_safe)]
fn chunk(
    text: Option<&str>,
    chunking: default!(Option<Jsonb>, "'{}'"),
    embedder: default!(Option<&str>, "NULL"),
    content_type: default!(Option<&str>, "'text/plain'"),
) -> Result<
    TableIterator<
        'static,
        (
            name!(ordinal, i32),
            name!(content, String),
            name!(token_count, i32),
            name!(start_char, i32),
            name!(end_char, i32),
            name!(headings, Vec<String>),
        ),
    >,
    ErrorReport,
> {
    let text = required("text", text)?;
    let chunking = required("chunking", value("chunking", chunking)?)?;
    let content_type = required("content_type", content_type)?;
    let embedder = embedders::get(embedder.map_or_else(settings::default_embedder, str::to_string).as_str())?;
    let dir = settings::model_dir();
    let chunking = Chunking::parse(&chunking, max_content_tokens(&embedder, &dir)?)
        .map_err(|problems| Error::Configuration { object: "chunking".into(), problems })?;
    let content_type = ContentType::parse(content_type).ok_or_else(|| Error::Argument {
        argument: "content_type",
        problem: format!("\"{content_type}\" is not one of text/plain, text/markdown, text/html"),
    })?;
    let tokenizer = Tokenizer::for_chunking(&chunking, &embedder, &dir)?;
    // What no document may be.
    if text.len() > settings::max_document_size() {
        return Err(Error::Limit {
            object: "the text".into(),
            problem: format!(
                "it has {} bytes; at most {} are taken",
                text.len(),
                settings::max_document_size()
            ),
            setting: "kb.max_document_size",
        }
        .into());
    }
    // A cancelled statement ends in the middle of the work.
    let bounds = Bounds::begin(settings::limits(report::check_interrupts));
    let extracted = ingest::parse::extract(text, content_type, &Preprocess::default(), &bounds)?;
    let chunks = ingest::chunk::chunk(&extracted.text, &chunking, &tokenizer, &extracted.marks, &bounds)?;
    Ok(TableIterator::new(chunks.into_iter().enumerate().map(|(i, chunk)| {
        (
            i as i32,
            chunk.content,
            chunk.token_count as i32,
            chunk.span.start as i32,
            chunk.span.end as i32,
            chunk.locator.headings,
        )
    })))
}
