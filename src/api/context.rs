//! kb.context and kb.annotate: from passages to a prompt, and from an answer back to passages.

use super::query::request;
use super::{elements, required};
use crate::error::Error;
use crate::model::context_format::ContextFormat;
use crate::pg::json::Jsonb;
use crate::pg::uuid::from_pg;
use crate::use_cases;
use pgrx::Uuid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[allow(clippy::too_many_arguments)]
#[pg_extern(stable, parallel_restricted)]
fn context(
    kb_id: Option<&str>,
    query: Option<&str>,
    max_tokens: default!(Option<i32>, "NULL"),
    format: default!(Option<&str>, "'markdown'"),
    top_k: default!(Option<i32>, "NULL"),
    min_score: default!(Option<f64>, "NULL"),
    filter: default!(Option<Jsonb>, "NULL"),
    mode: default!(Option<&str>, "NULL"),
    options: default!(Option<Jsonb>, "NULL"),
) -> Result<String, ErrorReport> {
    let request = request(kb_id, top_k, min_score, filter, max_tokens, mode, options)?;
    let format = format_named(required("format", format)?)?;
    Ok(use_cases::context(&request, required("query", query)?, format)?)
}

fn format_named(word: &str) -> crate::error::Result<ContextFormat> {
    let problem = || format!("\"{word}\" is not one of markdown, xml, json");
    ContextFormat::parse(word).ok_or_else(|| Error::Argument { argument: "format", problem: problem() })
}

#[pg_extern(stable, parallel_restricted)]
fn annotate(answer: Option<&str>, chunk_ids: Option<Vec<Option<Uuid>>>) -> Result<Jsonb, ErrorReport> {
    let ids = elements("chunk_ids", required("chunk_ids", chunk_ids)?)?;
    let ids: Vec<uuid::Uuid> = ids.into_iter().map(from_pg).collect();
    Ok(Jsonb(use_cases::annotate(required("answer", answer)?, &ids)?))
}
