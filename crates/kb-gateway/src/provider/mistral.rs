//! Mistral AI. <https://docs.mistral.ai/api/endpoint/embeddings>

use super::{Answer, HttpRequest, Provider, Unusable, read, url};
use kb_types::{Embedder, Kind};
use serde_json::json;

const BASE: &str = "https://api.mistral.ai/v1";

pub struct Mistral;

impl Provider for Mistral {
    fn base_url(&self) -> Option<&'static str> {
        Some(BASE)
    }

    fn model(&self) -> Option<(&'static str, usize)> {
        Some(("mistral-embed", 1024))
    }

    fn max_batch(&self, _embedder: &Embedder) -> usize {
        128
    }

    fn keys(&self) -> &'static [&'static str] {
        &["dimensions"]
    }

    fn request(&self, embedder: &Embedder, _kind: Kind, texts: &[String]) -> HttpRequest {
        let mut body = json!({"model": embedder.model, "input": texts});
        if let Some(dimensions) = embedder.config.remote.dimensions {
            body["output_dimension"] = json!(dimensions);
        }
        HttpRequest { method: "POST".to_string(), url: url(embedder, BASE, "/embeddings"), body }
    }

    fn read(&self, _embedder: &Embedder, body: &[u8], count: usize) -> Result<Answer, Unusable> {
        read::openai(body, count)
    }
}
