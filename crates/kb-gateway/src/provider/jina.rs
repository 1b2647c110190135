//! Jina AI. <https://api.jina.ai/redoc>

use super::{
    Address, Answer, EmbedAnswer, EmbedApi, HttpRequest, Provider, RerankApi, Unusable, read, task, url,
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
    fn model(&self) -> Option<&'static str> {
        Some("jina-embeddings-v3")
    }

    fn dimension(&self) -> Option<usize> {
        Some(1024)
    }

    fn max_batch(&self, _embedder: &Embedder) -> usize {
        512
    }

    fn keys(&self) -> &'static [&'static str] {
        &["dimensions", "document_task", "encoding_format", "query_task"]
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
        HttpRequest { method: "POST".to_string(), url: url(embedder, BASE, "/embeddings"), body }
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
    fn model(&self) -> Option<&'static str> {
        Some("jina-reranker-v2-base-multilingual")
    }

    fn path(&self) -> &'static str {
        "/rerank"
    }

    fn max_batch(&self) -> usize {
        1000
    }

    fn body(&self, reranker: &Reranker, query: &str, texts: &[String]) -> Value {
        json!({"model": reranker.model, "query": query, "documents": texts, "return_documents": false})
    }

    fn read(&self, body: &[u8], count: usize) -> Result<Answer<Vec<f64>>, Unusable> {
        let RerankReply { results, usage } = read::parse(body)?;
        read::scores(results, read::tokens(&usage, &["total_tokens"]), count)
    }
}
