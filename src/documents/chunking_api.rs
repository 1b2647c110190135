//! kb.chunk: what a chunking setting does to a text.

use crate::pg::function_arguments::{required, value};
use crate::pg::json::Jsonb;
use crate::pg::report::reported;

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
    reported(|| {
        let text = required("text", text)?;
        let chunking = required("chunking", value("chunking", chunking)?)?;
        let content_type = required("content_type", content_type)?;
        let chunks = crate::documents::chunk::chunk(text, &chunking, embedder, content_type)?;
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
    })
}

#[pg_extern(stable, parallel_safe)]
fn extract_text(
    value: Option<Jsonb>,
    fields: default!(Option<Jsonb>, "NULL"),
) -> Result<Option<String>, ErrorReport> {
    reported(|| {
        let fields = crate::pg::function_arguments::value("fields", fields)?.unwrap_or_default();
        let text = value
            .map(|Jsonb(json)| crate::documents::extract_text::extract_text(&json, &fields))
            .transpose()?;
        Ok(text)
    })
}
