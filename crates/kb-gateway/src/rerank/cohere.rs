//! Cohere. <https://docs.cohere.com/reference/rerank>

use super::super::provider::parse;
use super::{Answer, Dialect, Item, Unusable, in_order};
use kb_types::Reranker;
use serde::Deserialize;
use serde_json::{Value, json};

pub struct Cohere;

#[derive(Deserialize)]
struct Reply {
    results: Vec<Option<Item>>,
}

impl Dialect for Cohere {
    fn base_url(&self) -> Option<&'static str> {
        Some("https://api.cohere.com")
    }

    fn model(&self) -> &'static str {
        "rerank-v3.5"
    }

    fn path(&self) -> &'static str {
        "/v2/rerank"
    }

    fn max_batch(&self) -> usize {
        1000
    }

    fn body(&self, reranker: &Reranker, query: &str, texts: &[String]) -> Value {
        json!({"model": reranker.model, "query": query, "documents": texts})
    }

    /// Cohere bills searches and does not count tokens.
    fn read(&self, body: &[u8], count: usize) -> Result<Answer<Vec<f64>>, Unusable> {
        let Reply { results } = parse(body)?;
        in_order(results, None, count)
    }
}
