//! Ollama's own API. <https://docs.ollama.com/api/embed>

use super::read::Vector;
use super::{Answer, HttpRequest, Provider, Unusable, read, url};
use kb_types::{Embedder, Kind};
use serde::Deserialize;
use serde_json::{Value, json};

const BASE: &str = "http://localhost:11434";

pub struct Ollama;

#[derive(Deserialize)]
struct Embedded {
    embeddings: Vec<Vector>,
    #[serde(default)]
    prompt_eval_count: Value,
}

impl Provider for Ollama {
    fn base_url(&self) -> Option<&'static str> {
        Some(BASE)
    }

    fn model(&self) -> Option<(&'static str, usize)> {
        Some(("nomic-embed-text", 768))
    }

    fn needs_secret(&self) -> bool {
        false
    }

    fn max_batch(&self, _embedder: &Embedder) -> usize {
        512
    }

    fn keys(&self) -> &'static [&'static str] {
        &["dimensions"]
    }

    fn request(&self, embedder: &Embedder, _kind: Kind, texts: &[String]) -> HttpRequest {
        // truncate is always sent, because by default Ollama truncates a long text silently.
        let mut body = json!({"model": embedder.model, "input": texts, "truncate": embedder.config.truncate});
        if let Some(dimensions) = embedder.config.remote.dimensions {
            body["dimensions"] = json!(dimensions);
        }
        HttpRequest { method: "POST".to_string(), url: url(embedder, BASE, "/api/embed"), body }
    }

    fn read(&self, _embedder: &Embedder, body: &[u8], count: usize) -> Result<Answer, Unusable> {
        let Embedded { embeddings, prompt_eval_count } = read::parse(body)?;
        read::answer(embeddings, read::count(&prompt_eval_count), count)
    }
}
