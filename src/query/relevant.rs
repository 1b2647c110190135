//! kb.relevant: the texts that answer a question, for an agent that goes on without an embedder.

use super::query::query;
use kb_search::Request;
use kb_types::error::Result;
use serde_json::json;

/// The texts of at most `limit` rows of kb.query, in their order. If the question cannot be embedded, they
/// are found by words, whatever the knowledge base says.
pub fn relevant(kb_id: &str, question: &str, limit: Option<i32>) -> Result<Vec<String>> {
    let options = json!({"on_error": "keyword"});
    let request = Request::new(kb_id, limit, None, None, None, None, Some(options))?;
    Ok(query(&request, question)?.into_iter().map(|hit| hit.row.content).collect())
}
