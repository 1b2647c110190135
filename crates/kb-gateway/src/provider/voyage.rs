//! Voyage AI. <https://docs.voyageai.com/reference/embeddings-api> and
//! <https://docs.voyageai.com/reference/reranker-api>

use super::{
    Address, Answer, EmbedAnswer, EmbedApi, HttpRequest, Provider, RerankApi, Unusable, read, task, url,
};
use kb_types::{Embedder, Kind, Reranker};
use serde::Deserialize;
use serde_json::{Value, json};

const BASE: &str = "https://api.voyageai.com/v1";

pub const PROVIDER: Provider = Provider {
    name: "voyage",
    address: Address::Default(BASE),
    embed: Some(&Voyage),
    rerank: Some(&Voyage),
    ..Provider::DEFAULT
};

struct Voyage;

impl EmbedApi for Voyage {
    fn model(&self) -> Option<&'static str> {
        Some("voyage-3.5")
    }

    fn dimension(&self) -> Option<usize> {
        Some(1024)
    }

    fn max_batch(&self, _embedder: &Embedder) -> usize {
        1000
    }

    fn keys(&self) -> &'static [&'static str] {
        &["dimensions", "document_task", "query_task"]
    }

    fn request(&self, embedder: &Embedder, kind: Kind, texts: &[String]) -> HttpRequest {
        // truncation is always sent, because by default a long text is truncated silently.
        let mut body = json!({
            "model": embedder.model,
            "input": texts,
            "input_type": task(embedder, kind, "document", "query"),
            "truncation": embedder.config.truncate,
        });
        if let Some(dimensions) = embedder.config.remote.dimensions {
            body["output_dimension"] = json!(dimensions);
        }
        HttpRequest { method: "POST".to_string(), url: url(embedder, BASE, "/embeddings"), body }
    }

    fn read(&self, _embedder: &Embedder, body: &[u8], count: usize) -> Result<EmbedAnswer, Unusable> {
        read::openai(body, count)
    }
}

#[derive(Deserialize)]
struct RerankReply {
    data: Vec<Option<read::Score>>,
    #[serde(default)]
    usage: Value,
}

impl RerankApi for Voyage {
    fn model(&self) -> Option<&'static str> {
        Some("rerank-2.5")
    }

    fn path(&self) -> &'static str {
        "/rerank"
    }

    fn max_batch(&self) -> usize {
        1000
    }

    /// Requests truncation of texts that are too long, which is the default of other providers.
    fn body(&self, reranker: &Reranker, query: &str, texts: &[String]) -> Value {
        json!({
            "model": reranker.model, "query": query, "documents": texts, "return_documents": false,
            "truncation": true,
        })
    }

    fn read(&self, body: &[u8], count: usize) -> Result<Answer<Vec<f64>>, Unusable> {
        let RerankReply { data, usage } = read::parse(body)?;
        read::scores(data, read::tokens(&usage, &["total_tokens"]), count)
    }
}
