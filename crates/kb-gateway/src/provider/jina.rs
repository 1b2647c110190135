//! Jina AI. <https://api.jina.ai/redoc>

use super::{Answer, HttpRequest, Provider, Unusable, read, task, url};
use kb_types::remote::EncodingFormat;
use kb_types::{Embedder, Kind};
use serde_json::json;

const BASE: &str = "https://api.jina.ai/v1";

pub struct Jina;

impl Provider for Jina {
    fn base_url(&self) -> Option<&'static str> {
        Some(BASE)
    }

    fn model(&self) -> Option<(&'static str, usize)> {
        Some(("jina-embeddings-v3", 1024))
    }

    fn max_batch(&self, _embedder: &Embedder) -> usize {
        512
    }

    fn keys(&self) -> &'static [&'static str] {
        &["dimensions", "document_task", "encoding_format", "query_task"]
    }

    fn request(&self, embedder: &Embedder, kind: Kind, texts: &[String]) -> HttpRequest {
        let remote = &embedder.config.remote;
        // With late chunking a vector would depend on the other texts of its batch.
        let mut body = json!({
            "model": embedder.model,
            "input": texts,
            "task": task(embedder, kind, "retrieval.passage", "retrieval.query"),
            "late_chunking": false,
            "truncate": embedder.config.truncate,
            "embedding_type": remote.encoding_format.unwrap_or(EncodingFormat::Float),
        });
        if let Some(dimensions) = remote.dimensions {
            body["dimensions"] = json!(dimensions);
        }
        HttpRequest { method: "POST".to_string(), url: url(embedder, BASE, "/embeddings"), body }
    }

    fn read(&self, _embedder: &Embedder, body: &[u8], count: usize) -> Result<Answer, Unusable> {
        read::openai(body, count)
    }
}
