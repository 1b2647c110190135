//! kb.context: answers a question with one text of numbered passages, for a prompt.

use super::query::query;
use crate::error::Result;
use crate::model::Hit;
use crate::model::context_format::ContextFormat;
use crate::retrieve::Request;
use crate::retrieve::context::{self, Cited};
use crate::store::{passages, search};
use serde_json::Value;
use std::collections::HashMap;

/// As [`query`], in one text. `max_tokens` bounds it with all that is around the passages.
pub fn context(request: &Request, question: &str, format: ContextFormat) -> Result<String> {
    let mut request = request.clone();
    request.as_context = true;
    let hits = query(&request, question)?;
    let max_tokens = request.retrieval(&search::target(&request.kb_id)?.retrieval)?.max_tokens;
    let documents: Vec<i64> = hits.iter().map(|hit| hit.row.place.document_id).collect();
    let uris = passages::uris(&documents)?;
    let passages: Vec<Cited> = hits.into_iter().map(|hit| cited(hit, &uris)).collect();
    Ok(context::text(&passages, format, max_tokens))
}

fn cited(hit: Hit, uris: &HashMap<i64, String>) -> Cited {
    let headings = match hit.row.locator.get("headings") {
        Some(Value::Array(titles)) => titles.iter().filter_map(|t| t.as_str().map(str::to_string)).collect(),
        _ => Vec::new(),
    };
    // Only those that were checked are told.
    let is_checked = hit.row.locator.get("start_char").is_some();
    Cited {
        uri: uris.get(&hit.row.place.document_id).cloned(),
        span: is_checked.then_some((hit.row.place.start, hit.row.place.end)),
        headings,
        external_id: hit.row.external_id,
        title: hit.row.title,
        content: hit.row.content,
        token_count: hit.row.token_count,
    }
}
