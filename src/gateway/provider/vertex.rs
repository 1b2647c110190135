//! Google's Vertex AI.
//! <https://cloud.google.com/vertex-ai/generative-ai/docs/model-reference/text-embeddings-api>

use super::{Answer, HttpRequest, Provider, Unusable, read, task, url};
use crate::model::{Embedder, Kind};
use serde::Deserialize;
use serde_json::{Value, json};

pub struct Vertex;

#[derive(Deserialize)]
struct Predicted {
    predictions: Vec<Prediction>,
}

#[derive(Deserialize)]
struct Prediction {
    embeddings: Embedding,
}

#[derive(Deserialize)]
struct Embedding {
    values: Vec<f32>,
    statistics: Option<Statistics>,
}

#[derive(Deserialize)]
struct Statistics {
    /// Its reference writes tokenCount, its answers token_count. A whole number, which may come as 3.0.
    #[serde(alias = "tokenCount")]
    token_count: Option<f64>,
    #[serde(default)]
    truncated: bool,
}

impl Provider for Vertex {
    fn base_url(&self) -> Option<&'static str> {
        None
    }

    fn model(&self) -> Option<(&'static str, usize)> {
        Some(("gemini-embedding-001", 3072))
    }

    fn max_batch(&self, embedder: &Embedder) -> usize {
        if embedder.model.starts_with("gemini-embedding") { 1 } else { 250 }
    }

    fn keys(&self) -> &'static [&'static str] {
        &["dimensions", "document_task", "query_task"]
    }

    fn problems(&self, embedder: &Embedder) -> Vec<String> {
        if embedder.base_url.is_some() {
            return Vec::new();
        }
        vec![
            "base_url: must be given: https://REGION-aiplatform.googleapis.com/v1/projects/PROJECT/\
             locations/REGION/publishers/google/models"
                .to_string(),
        ]
    }

    fn request(&self, embedder: &Embedder, kind: Kind, texts: &[String]) -> HttpRequest {
        let task = task(embedder, kind, "RETRIEVAL_DOCUMENT", "RETRIEVAL_QUERY");
        let instances: Vec<Value> =
            texts.iter().map(|text| json!({"content": text, "task_type": task})).collect();
        // autoTruncate is always sent: the default is to cut a long text silently.
        let mut parameters = json!({"autoTruncate": embedder.config.truncate});
        if let Some(dimensions) = embedder.config.remote.dimensions {
            parameters["outputDimensionality"] = json!(dimensions);
        }
        let path = format!("/{}:predict", embedder.model);
        HttpRequest {
            method: "POST".to_string(),
            url: url(embedder, "", &path),
            body: json!({"instances": instances, "parameters": parameters}),
        }
    }

    fn read(&self, embedder: &Embedder, body: &[u8], count: usize) -> Result<Answer, Unusable> {
        let Predicted { predictions } = read::parse(body)?;
        let was_cut = |prediction: &Prediction| {
            prediction.embeddings.statistics.as_ref().is_some_and(|statistics| statistics.truncated)
        };
        if !embedder.config.truncate && predictions.iter().any(was_cut) {
            let problem = "a text is longer than the model reads, and was cut";
            return Err(Unusable::Truncated(problem.into()));
        }
        let tokens: Option<f64> =
            predictions.iter().map(|prediction| prediction.embeddings.statistics.as_ref()?.token_count).sum();
        let vectors = predictions.into_iter().map(|prediction| prediction.embeddings.values).collect();
        read::answer(vectors, tokens.map(|tokens| tokens as u64), count)
    }
}
