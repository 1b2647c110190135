//! kb.context: answers a question with one text of numbered passages, for a prompt.

use super::query::{Answer, logged};
use super::query_several::{Together, together};
use crate::gateway::client;
use crate::query::sql::passages;
use crate::query::sql::search::SearchTarget;
use crate::settings;
use kb_search::Request;
use kb_search::context;
use kb_search::context::{Cited, CitedBlock};
use kb_types::context_format::ContextFormat;
use kb_types::error::Result;
use kb_types::{Embedder, Hit, Json};
use serde_json::{Value, json};
use std::collections::HashMap;
use uuid::Uuid;

/// A text for a prompt, and what it contains.
pub struct Context {
    pub text: String,
    /// The chunks of all blocks, in order.
    pub chunk_ids: Vec<Uuid>,
    /// An array with an object for each block.
    pub blocks: Json,
    pub tokens: usize,
    /// Whether the end of the best passage is left out, because it has more tokens than the text may have.
    pub is_truncated: bool,
}

/// Does what kb.query does, and makes one text of the rows. `max_tokens` bounds the whole text, including
/// everything around the passages.
pub fn context(request: &Request, question: &str, format: ContextFormat) -> Result<Context> {
    let Answer { hits, target, bounds, .. } = logged(&as_context(request), question)?;
    write(hits, &target, bounds.max_tokens, format)
}

/// Does what kb.query does over several knowledge bases. Tokens are counted by the tokeniser of the first
/// one.
pub fn context_several(
    kb_ids: &[String],
    request: &Request,
    question: &str,
    format: ContextFormat,
    weights: Option<&[f64]>,
) -> Result<Context> {
    let Together { hits, first, max_tokens } = together(kb_ids, &as_context(request), question, weights)?;
    write(hits, &first, max_tokens, format)
}

fn as_context(request: &Request) -> Request {
    let mut request = request.clone();
    request.as_context = true;
    request
}

fn write(
    hits: Vec<Hit>,
    target: &SearchTarget,
    max_tokens: Option<usize>,
    format: ContextFormat,
) -> Result<Context> {
    let passages = cited(hits.iter())?;
    let counted_by = counted_by(target);
    let count = |texts: &[String]| count(&counted_by, texts);
    let written = context::text(&passages, format, max_tokens, &count)?;
    let hit = |block: &CitedBlock| &hits[block.passage];
    let objects: Vec<Json> = (1..)
        .zip(&written.blocks)
        .map(|(index, block)| described(index, block, hit(block), &passages[block.passage]))
        .collect();
    Ok(Context {
        chunk_ids: written.blocks.iter().flat_map(|block| chunk_ids(hit(block))).collect(),
        blocks: Json::array(&objects),
        tokens: written.tokens,
        is_truncated: written.blocks.iter().any(|block| block.is_truncated),
        text: written.text,
    })
}

/// An embedder that counts tokens as they were counted for the knowledge base's chunks.
pub fn counted_by(target: &SearchTarget) -> Embedder {
    match &target.tokenizer {
        None => target.embedder.clone(),
        // A tokeniser of one of OpenAI's models.
        Some(model) => {
            Embedder { provider: "openai".into(), model: model.clone(), ..target.embedder.clone() }
        }
    }
}

/// The tokens of texts, as this embedder counts them.
pub fn count(counted_by: &Embedder, texts: &[String]) -> Result<Vec<usize>> {
    let counts = client::count_tokens(counted_by, texts.to_vec(), settings::gateway_timeout())?;
    Ok(counts.into_iter().map(|count| count as usize).collect())
}

/// Rows as passages with their sources.
pub fn cited<'a>(hits: impl Iterator<Item = &'a Hit> + Clone) -> Result<Vec<Cited>> {
    let documents: Vec<i64> = hits.clone().map(|hit| hit.row.place.document_id).collect();
    let uris = passages::uris(&documents)?;
    Ok(hits.map(|hit| passage(hit, &uris)).collect())
}

fn passage(hit: &Hit, uris: &HashMap<i64, String>) -> Cited {
    let headings = match hit.row.locator.get("headings") {
        Some(Value::Array(titles)) => titles.iter().filter_map(|t| t.as_str().map(str::to_string)).collect(),
        _ => Vec::new(),
    };
    // Only positions that were checked are returned.
    let is_checked = hit.row.locator.get("start_char").is_some();
    Cited {
        uri: uris.get(&hit.row.place.document_id).cloned(),
        span: is_checked.then_some((hit.row.place.start, hit.row.place.end)),
        headings,
        external_id: hit.row.external_id.clone(),
        title: hit.row.title.clone(),
        content: hit.row.content.clone(),
        is_truncated: false,
    }
}

/// All chunks of a row.
pub fn chunk_ids(hit: &Hit) -> Vec<Uuid> {
    let ids = hit.row.locator.get("chunk_ids").and_then(Value::as_array);
    let ids = ids.map(|ids| ids.iter().filter_map(|id| id.as_str()?.parse().ok()).collect());
    ids.unwrap_or_else(|| vec![hit.chunk_id])
}

fn described(index: usize, block: &CitedBlock, hit: &Hit, cited: &Cited) -> Json {
    Json::object(&members(index, block, hit, cited))
}

/// What is said of a block.
pub fn members(index: usize, block: &CitedBlock, hit: &Hit, cited: &Cited) -> Vec<(&'static str, Json)> {
    let ids: Vec<String> = chunk_ids(hit).iter().map(Uuid::to_string).collect();
    let json = |value: Value| Json::new(value.to_string());
    let (start, end) = block.span.unzip();
    vec![
        ("index", json(json!(index))),
        ("kb_id", json(json!(hit.kb_id))),
        ("external_id", json(json!(hit.row.external_id))),
        ("title", json(json!(hit.row.title))),
        ("uri", json(json!(cited.uri))),
        ("chunk_ids", json(json!(ids))),
        ("score", json(json!(hit.score))),
        ("rank_score", json(json!(hit.rank_score))),
        ("start_char", json(json!(start))),
        ("end_char", json(json!(end))),
        ("truncated", json(json!(block.is_truncated))),
        // Stored text, because numbers may have more digits than a JSON value holds here.
        ("metadata", hit.row.metadata.clone()),
    ]
}
