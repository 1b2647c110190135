//! Jina AI. <https://api.jina.ai/redoc>

use super::super::provider::{parse, tokens};
use super::{Answer, Dialect, Item, Unusable, in_order};
use kb_types::Reranker;
use serde::Deserialize;
use serde_json::{Value, json};

pub struct Jina;

#[derive(Deserialize)]
struct Reply {
    results: Vec<Option<Item>>,
    #[serde(default)]
    usage: Value,
}

impl Dialect for Jina {
    fn base_url(&self) -> Option<&'static str> {
        Some("https://api.jina.ai/v1")
    }

    fn model(&self) -> &'static str {
        "jina-reranker-v2-base-multilingual"
    }

    fn path(&self) -> &'static str {
        "/rerank"
    }

    fn max_batch(&self) -> usize {
        1000
    }

    fn body(&self, reranker: &Reranker, query: &str, texts: &[String]) -> Value {
        json!({"model": reranker.model, "query": query, "documents": texts, "return_documents": false})
    }

    fn read(&self, body: &[u8], count: usize) -> Result<Answer<Vec<f64>>, Unusable> {
        let Reply { results, usage } = parse(body)?;
        in_order(results, tokens(&usage, &["total_tokens"]), count)
    }
}
