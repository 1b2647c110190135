//! Cohere. <https://docs.cohere.com/reference/embed> and <https://docs.cohere.com/reference/rerank>

use super::read::Vector;
use super::{
    Address, Answer, EmbedAnswer, EmbedApi, EmbedFacts, HttpRequest, Provider, RerankApi, RerankFacts,
    Unusable, read, task, url,
};
use kb_types::{Embedder, Kind, Reranker};
use serde::Deserialize;
use serde_json::{Value, json};

const BASE: &str = "https://api.cohere.com";

pub const PROVIDER: Provider = Provider {
    name: "cohere",
    address: Address::Default(BASE),
    embed: Some(&Cohere),
    rerank: Some(&Cohere),
    ..Provider::DEFAULT
};

struct Cohere;

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

impl EmbedApi for Cohere {
    fn facts(&self) -> EmbedFacts {
        EmbedFacts {
            model: Some("embed-v4.0"),
            dimension: Some(1536),
            max_batch: 96,
            keys: &["dimensions", "document_task", "query_task"],
        }
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
        HttpRequest::post(url(embedder, BASE, "/v2/embed"), body)
    }

    fn read(&self, _embedder: &Embedder, body: &[u8], count: usize) -> Result<EmbedAnswer, Unusable> {
        let Embedded { embeddings, meta } = read::parse(body)?;
        let tokens = meta.get("billed_units").and_then(|units| read::tokens(units, &["input_tokens"]));
        read::answer(embeddings.float, tokens, count)
    }
}

#[derive(Deserialize)]
struct RerankReply {
    results: Vec<Option<read::Score>>,
}

impl RerankApi for Cohere {
    fn facts(&self) -> RerankFacts {
        RerankFacts { model: Some("rerank-v3.5"), path: "/v2/rerank", max_batch: 1000 }
    }

    fn body(&self, reranker: &Reranker, query: &str, texts: &[String]) -> Value {
        json!({"model": reranker.model, "query": query, "documents": texts})
    }

    /// Cohere bills searches and does not count tokens.
    fn read(&self, body: &[u8], count: usize) -> Result<Answer<Vec<f64>>, Unusable> {
        let RerankReply { results } = read::parse(body)?;
        read::scores(results, None, count)
    }
}
