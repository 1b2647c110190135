//! Google's Gemini API. It truncates texts that are too long silently.
//! <https://ai.google.dev/api/embeddings#method:-models.batchembedcontents>

use super::read::Vector;
use super::{
    Address, Auth, EmbedAnswer, EmbedApi, EmbedFacts, HttpRequest, Provider, Unusable, read, task, url,
};
use kb_types::url_path::escaped;
use kb_types::{Embedder, Kind};
use serde::Deserialize;
use serde_json::{Value, json};

const BASE: &str = "https://generativelanguage.googleapis.com/v1beta";

pub const PROVIDER: Provider = Provider {
    name: "gemini",
    address: Address::Default(BASE),
    auth: Auth::Header("x-goog-api-key"),
    embed: Some(&Gemini),
    ..Provider::DEFAULT
};

struct Gemini;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Embedded {
    embeddings: Vec<Option<Embedding>>,
    #[serde(default)]
    usage_metadata: Value,
}

#[derive(Default, Deserialize)]
struct Embedding {
    #[serde(default)]
    values: Vector,
}

impl EmbedApi for Gemini {
    fn facts(&self) -> EmbedFacts {
        EmbedFacts {
            model: Some("gemini-embedding-001"),
            dimension: Some(3072),
            max_batch: 100,
            keys: &["dimensions", "document_task", "query_task"],
        }
    }

    fn request(&self, embedder: &Embedder, kind: Kind, texts: &[String]) -> HttpRequest {
        // Google's own lists put this prefix before names of models.
        let model = embedder.model.strip_prefix("models/").unwrap_or(&embedder.model);
        let request = |text: &String| {
            let mut request = json!({
                "model": format!("models/{model}"),
                "content": {"parts": [{"text": text}]},
                "taskType": task(embedder, kind, "RETRIEVAL_DOCUMENT", "RETRIEVAL_QUERY"),
            });
            if let Some(dimensions) = embedder.config.remote.dimensions {
                request["outputDimensionality"] = json!(dimensions);
            }
            request
        };
        let requests: Vec<Value> = texts.iter().map(request).collect();
        let path = format!("/models/{}:batchEmbedContents", escaped(model));
        HttpRequest::post(url(embedder, BASE, &path), json!({"requests": requests}))
    }

    fn read(&self, _embedder: &Embedder, body: &[u8], count: usize) -> Result<EmbedAnswer, Unusable> {
        let Embedded { embeddings, usage_metadata } = read::parse(body)?;
        let tokens = read::tokens(&usage_metadata, &["promptTokenCount"]);
        let vectors = embeddings.into_iter().map(|embedding| embedding.unwrap_or_default().values);
        read::answer(vectors.collect(), tokens, count)
    }
}
