//! Voyage AI. <https://docs.voyageai.com/reference/embeddings-api>

use super::{Answer, HttpRequest, Provider, Unusable, read, task, url};
use kb_types::{Embedder, Kind};
use serde_json::json;

const BASE: &str = "https://api.voyageai.com/v1";

pub struct Voyage;

impl Provider for Voyage {
    fn base_url(&self) -> Option<&'static str> {
        Some(BASE)
    }

    fn model(&self) -> Option<(&'static str, usize)> {
        Some(("voyage-3.5", 1024))
    }

    fn max_batch(&self, _embedder: &Embedder) -> usize {
        1000
    }

    fn keys(&self) -> &'static [&'static str] {
        &["dimensions", "document_task", "query_task"]
    }

    fn request(&self, embedder: &Embedder, kind: Kind, texts: &[String]) -> HttpRequest {
        // truncation is always sent, because by default a long text is truncated silently.
        let mut body = json!({
            "model": embedder.model,
            "input": texts,
            "input_type": task(embedder, kind, "document", "query"),
            "truncation": embedder.config.truncate,
        });
        if let Some(dimensions) = embedder.config.remote.dimensions {
            body["output_dimension"] = json!(dimensions);
        }
        HttpRequest { method: "POST".to_string(), url: url(embedder, BASE, "/embeddings"), body }
    }

    fn read(&self, _embedder: &Embedder, body: &[u8], count: usize) -> Result<Answer, Unusable> {
        read::openai(body, count)
    }
}
