//! Cohere. <https://docs.cohere.com/reference/embed>

use super::read::Vector;
use super::{Answer, HttpRequest, Provider, Unusable, read, task, url};
use kb_types::{Embedder, Kind};
use serde::Deserialize;
use serde_json::{Value, json};

const BASE: &str = "https://api.cohere.com";

pub struct Cohere;

#[derive(Deserialize)]
struct Embedded {
    embeddings: Embeddings,
    #[serde(default)]
    meta: Value,
}

#[derive(Deserialize)]
struct Embeddings {
    float: Vec<Vector>,
}

impl Provider for Cohere {
    fn base_url(&self) -> Option<&'static str> {
        Some(BASE)
    }

    fn model(&self) -> Option<(&'static str, usize)> {
        Some(("embed-v4.0", 1536))
    }

    fn max_batch(&self, _embedder: &Embedder) -> usize {
        96
    }

    fn keys(&self) -> &'static [&'static str] {
        &["dimensions", "document_task", "query_task"]
    }

    fn request(&self, embedder: &Embedder, kind: Kind, texts: &[String]) -> HttpRequest {
        let mut body = json!({
            "model": embedder.model,
            "texts": texts,
            "input_type": task(embedder, kind, "search_document", "search_query"),
            "embedding_types": ["float"],
            "truncate": if embedder.config.truncate { "END" } else { "NONE" },
        });
        if let Some(dimensions) = embedder.config.remote.dimensions {
            body["output_dimension"] = json!(dimensions);
        }
        HttpRequest { method: "POST".to_string(), url: url(embedder, BASE, "/v2/embed"), body }
    }

    fn read(&self, _embedder: &Embedder, body: &[u8], count: usize) -> Result<Answer, Unusable> {
        let Embedded { embeddings, meta } = read::parse(body)?;
        let tokens = meta.get("billed_units").and_then(|units| read::tokens(units, &["input_tokens"]));
        read::answer(embeddings.float, tokens, count)
    }
}
