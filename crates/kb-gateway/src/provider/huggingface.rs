//! Hugging Face: a Text Embeddings Inference server at base_url, or else the hosted inference API.
//! <https://huggingface.github.io/text-embeddings-inference/> and
//! <https://huggingface.co/docs/inference-providers/tasks/feature-extraction>

use super::read::Vector;
use super::{Address, EmbedAnswer, EmbedApi, EmbedFacts, HttpRequest, Provider, Unusable, read, task, url};
use kb_types::url_path::escaped;
use kb_types::{Embedder, Kind};
use serde_json::json;

const BASE: &str = "https://router.huggingface.co/hf-inference";

pub const PROVIDER: Provider = Provider {
    name: "huggingface",
    address: Address::Default(BASE),
    needs_secret: false,
    embed: Some(&HuggingFace),
    ..Provider::DEFAULT
};

struct HuggingFace;

impl EmbedApi for HuggingFace {
    /// max_batch is the server's default for --max-client-batch-size.
    fn facts(&self) -> EmbedFacts {
        EmbedFacts {
            model: None,
            dimension: None,
            max_batch: 32,
            keys: &["dimensions", "document_task", "query_task"],
        }
    }

    fn problems(&self, embedder: &Embedder) -> Vec<String> {
        if embedder.base_url.is_some() || embedder.config.remote.dimensions.is_none() {
            return Vec::new();
        }
        vec![
            "config.dimensions: only a Text Embeddings Inference server can shorten vectors; specify its URL as base_url"
                .to_string(),
        ]
    }

    fn request(&self, embedder: &Embedder, kind: Kind, texts: &[String]) -> HttpRequest {
        let mut body = json!({"inputs": texts, "normalize": true, "truncate": embedder.config.truncate});
        if let Some(dimensions) = embedder.config.remote.dimensions {
            body["dimensions"] = json!(dimensions);
        }
        // Only some models have named prompts, and an unknown name is refused.
        let prompt = task(embedder, kind, "", "");
        if !prompt.is_empty() {
            body["prompt_name"] = json!(prompt);
        }
        let path = match embedder.base_url {
            Some(_) => "/embed".to_string(),
            None => format!("/models/{}/pipeline/feature-extraction", escaped(&embedder.model)),
        };
        HttpRequest::post(url(embedder, BASE, &path), body)
    }

    fn read(&self, _embedder: &Embedder, body: &[u8], count: usize) -> Result<EmbedAnswer, Unusable> {
        let vectors: Vec<Vector> = read::parse(body)?;
        let opening = body.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).take(3);
        if opening.eq(*b"[[[") && vectors.iter().all(|vector| vector.0.is_err()) {
            let problem = "the provider returned a vector for each token instead of one for each text; the model must use pooling";
            return Err(problem.to_string().into());
        }
        read::answer(vectors, None, count)
    }
}
