//! Mistral AI. <https://docs.mistral.ai/api/endpoint/embeddings>

use super::{Address, EmbedAnswer, EmbedApi, EmbedFacts, HttpRequest, Provider, Unusable, read, url};
use kb_types::{Embedder, Kind};
use serde_json::json;

const BASE: &str = "https://api.mistral.ai/v1";

pub const PROVIDER: Provider =
    Provider { name: "mistral", address: Address::Default(BASE), embed: Some(&Mistral), ..Provider::DEFAULT };

struct Mistral;

impl EmbedApi for Mistral {
    fn facts(&self) -> EmbedFacts {
        EmbedFacts {
            model: Some("mistral-embed"),
            dimension: Some(1024),
            max_batch: 128,
            keys: &["dimensions"],
        }
    }

    fn request(&self, embedder: &Embedder, _kind: Kind, texts: &[String]) -> HttpRequest {
        let mut body = json!({"model": embedder.model, "input": texts});
        if let Some(dimensions) = embedder.config.remote.dimensions {
            body["output_dimension"] = json!(dimensions);
        }
        HttpRequest::post(url(embedder, BASE, "/embeddings"), body)
    }

    fn read(&self, _embedder: &Embedder, body: &[u8], count: usize) -> Result<EmbedAnswer, Unusable> {
        read::openai(body, count)
    }
}
