//! Voyage AI. <https://docs.voyageai.com/reference/reranker-api>

use super::super::provider::{parse, tokens};
use super::{Answer, Dialect, Item, Unusable, in_order};
use kb_types::Reranker;
use serde::Deserialize;
use serde_json::{Value, json};

pub struct Voyage;

#[derive(Deserialize)]
struct Reply {
    data: Vec<Option<Item>>,
    #[serde(default)]
    usage: Value,
}

impl Dialect for Voyage {
    fn base_url(&self) -> Option<&'static str> {
        Some("https://api.voyageai.com/v1")
    }

    fn model(&self) -> &'static str {
        "rerank-2.5"
    }

    fn path(&self) -> &'static str {
        "/rerank"
    }

    fn max_batch(&self) -> usize {
        1000
    }

    /// Requests truncation of texts that are too long, which is the default of other providers.
    fn body(&self, reranker: &Reranker, query: &str, texts: &[String]) -> Value {
        json!({
            "model": reranker.model, "query": query, "documents": texts, "return_documents": false,
            "truncation": true,
        })
    }

    fn read(&self, body: &[u8], count: usize) -> Result<Answer<Vec<f64>>, Unusable> {
        let Reply { data, usage } = parse(body)?;
        in_order(data, tokens(&usage, &["total_tokens"]), count)
    }
}
