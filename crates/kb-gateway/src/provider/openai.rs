//! OpenAI, and every server that speaks its embeddings API.
//! <https://platform.openai.com/docs/api-reference/embeddings/create>

use super::{Answer, HttpRequest, Provider, Unusable, read, url};
use kb_types::remote::EncodingFormat;
use kb_types::{Embedder, Kind};
use serde_json::json;

const BASE: &str = "https://api.openai.com/v1";

pub struct OpenAi;

impl Provider for OpenAi {
    fn base_url(&self) -> Option<&'static str> {
        Some(BASE)
    }

    fn model(&self) -> Option<(&'static str, usize)> {
        Some(("text-embedding-3-small", 1536))
    }

    /// A self-hosted server may need no key.
    fn needs_secret(&self) -> bool {
        false
    }

    fn max_batch(&self, _embedder: &Embedder) -> usize {
        2048
    }

    fn keys(&self) -> &'static [&'static str] {
        &["dimensions", "encoding_format"]
    }

    fn request(&self, embedder: &Embedder, _kind: Kind, texts: &[String]) -> HttpRequest {
        let remote = &embedder.config.remote;
        let (host, base_path) = host_and_path(embedder.base_url.as_deref().unwrap_or(BASE));
        // Not all compatible servers support base64.
        let default_encoding =
            if host == "api.openai.com" { EncodingFormat::Base64 } else { EncodingFormat::Float };
        let mut body = json!({
            "model": embedder.model,
            "input": texts,
            "encoding_format": remote.encoding_format.unwrap_or(default_encoding),
        });
        if let Some(dimensions) = remote.dimensions {
            body["dimensions"] = json!(dimensions);
        }
        // base_url is accepted with /v1, as in OpenAI's own clients, and without.
        let path = if base_path.is_empty() { "/v1/embeddings" } else { "/embeddings" };
        HttpRequest { method: "POST".to_string(), url: url(embedder, BASE, path), body }
    }

    fn read(&self, _embedder: &Embedder, body: &[u8], count: usize) -> Result<Answer, Unusable> {
        read::openai(body, count)
    }
}

/// Splits "https://host:80/v1/" into "host:80" and "v1".
fn host_and_path(base: &str) -> (&str, &str) {
    let rest = base.split_once("://").map_or(base, |(_, rest)| rest);
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    (host, path.trim_matches('/'))
}
