//! Jina AI. <https://api.jina.ai/redoc>

use super::{
    Address, Answer, EmbedAnswer, EmbedApi, EmbedFacts, HttpRequest, Provider, RerankApi, RerankFacts,
    Unusable, read, task, url,
};
use kb_types::remote_settings::EncodingFormat;
use kb_types::{Embedder, Kind, Reranker};
use serde::Deserialize;
use serde_json::{Value, json};

const BASE: &str = "https://api.jina.ai/v1";

pub const PROVIDER: Provider = Provider {
    name: "jina",
    address: Address::Default(BASE),
    embed: Some(&Jina),
    rerank: Some(&Jina),
    ..Provider::DEFAULT
};

struct Jina;

impl EmbedApi for Jina {
    fn facts(&self) -> EmbedFacts {
        EmbedFacts {
            model: Some("jina-embeddings-v3"),
            dimension: Some(1024),
            max_batch: 512,
            keys: &["dimensions", "document_task", "encoding_format", "query_task"],
        }
    }

    fn request(&self, embedder: &Embedder, kind: Kind, texts: &[String]) -> HttpRequest {
        let remote = &embedder.config.remote;
        // With late chunking a vector would depend on the other texts of its batch.
        let mut body = json!({
            "model": embedder.model,
            "input": texts,
            "task": task(embedder, kind, "retrieval.passage", "retrieval.query"),
            "late_chunking": false,
            "truncate": embedder.config.truncate,
            "embedding_type": remote.encoding_format.unwrap_or(EncodingFormat::Float),
        });
        if let Some(dimensions) = remote.dimensions {
            body["dimensions"] = json!(dimensions);
        }
        HttpRequest::post(url(embedder, BASE, "/embeddings"), body)
    }

    fn read(&self, _embedder: &Embedder, body: &[u8], count: usize) -> Result<EmbedAnswer, Unusable> {
        read::openai(body, count)
    }
}

#[derive(Deserialize)]
struct RerankReply {
    results: Vec<Option<read::Score>>,
    #[serde(default)]
    usage: Value,
}

impl RerankApi for Jina {
    fn facts(&self) -> RerankFacts {
        RerankFacts { model: Some("jina-reranker-v2-base-multilingual"), path: "/rerank", max_batch: 1000 }
    }

    fn body(&self, reranker: &Reranker, query: &str, texts: &[String]) -> Value {
        json!({"model": reranker.model, "query": query, "documents": texts, "return_documents": false})
    }

    fn read(&self, body: &[u8], count: usize) -> Result<Answer<Vec<f64>>, Unusable> {
        let RerankReply { results, usage } = read::parse(body)?;
        read::scores(results, read::tokens(&usage, &["total_tokens"]), count)
    }
}
