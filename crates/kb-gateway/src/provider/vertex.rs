//! Google's Vertex AI.
//! <https://cloud.google.com/vertex-ai/generative-ai/docs/model-reference/text-embeddings-api>

use super::read::Vector;
use super::{Address, EmbedAnswer, EmbedApi, EmbedFacts, HttpRequest, Provider, Unusable, read, task, url};
use kb_types::url_path::escaped;
use kb_types::{Embedder, Kind};
use serde::Deserialize;
use serde_json::{Value, json};

pub const PROVIDER: Provider = Provider {
    name: "vertex",
    address: Address::Given(
        "https://REGION-aiplatform.googleapis.com/v1/projects/PROJECT/locations/REGION/publishers/google/models",
    ),
    embed: Some(&Vertex),
    ..Provider::DEFAULT
};

struct Vertex;

#[derive(Deserialize)]
struct Predicted {
    predictions: Vec<Option<Prediction>>,
}

#[derive(Default, Deserialize)]
struct Prediction {
    embeddings: Option<Embedding>,
}

#[derive(Default, Deserialize)]
struct Embedding {
    #[serde(default)]
    values: Vector,
    #[serde(default)]
    statistics: Value,
}

impl EmbedApi for Vertex {
    fn facts(&self) -> EmbedFacts {
        EmbedFacts {
            model: Some("gemini-embedding-001"),
            dimension: Some(3072),
            max_batch: 250,
            keys: &["dimensions", "document_task", "query_task"],
        }
    }

    fn max_batch(&self, embedder: &Embedder) -> usize {
        if embedder.model.starts_with("gemini-embedding") { 1 } else { 250 }
    }

    fn request(&self, embedder: &Embedder, kind: Kind, texts: &[String]) -> HttpRequest {
        let task = task(embedder, kind, "RETRIEVAL_DOCUMENT", "RETRIEVAL_QUERY");
        let instances: Vec<Value> =
            texts.iter().map(|text| json!({"content": text, "task_type": task})).collect();
        // autoTruncate is always sent, because by default a long text is truncated silently.
        let mut parameters = json!({"autoTruncate": embedder.config.truncate});
        if let Some(dimensions) = embedder.config.remote.dimensions {
            parameters["outputDimensionality"] = json!(dimensions);
        }
        let path = format!("/{}:predict", escaped(&embedder.model));
        HttpRequest::post(url(embedder, "", &path), json!({"instances": instances, "parameters": parameters}))
    }

    fn read(&self, embedder: &Embedder, body: &[u8], count: usize) -> Result<EmbedAnswer, Unusable> {
        let Predicted { predictions } = read::parse(body)?;
        let (mut vectors, mut tokens) = (Vec::with_capacity(count), Some(0));
        for prediction in predictions {
            let Embedding { values, statistics } =
                prediction.and_then(|prediction| prediction.embeddings).unwrap_or_default();
            // The reference documents tokenCount, but replies have token_count.
            let counted = read::tokens(&statistics, &["token_count", "tokenCount"]);
            tokens = tokens.zip(counted).map(|(sum, counted): (u64, u64)| sum.saturating_add(counted));
            let was_cut = !embedder.config.truncate && statistics["truncated"] == Value::Bool(true);
            vectors.push(match was_cut {
                true => Vector(Err(Unusable::Truncated(
                    "a text is longer than the model reads, and was cut".into(),
                ))),
                false => values,
            });
        }
        read::answer(vectors, tokens, count)
    }
}
