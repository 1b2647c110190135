//! Voyage AI. <https://docs.voyageai.com/reference/embeddings-api> and
//! <https://docs.voyageai.com/reference/reranker-api>

use super::{
    Address, Answer, EmbedAnswer, EmbedApi, EmbedFacts, HttpRequest, Provider, RerankApi, RerankFacts,
    Unusable, read, task, url,
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
    fn facts(&self) -> EmbedFacts {
        EmbedFacts {
            model: Some("voyage-3.5"),
            dimension: Some(1024),
            max_batch: 1000,
            keys: &["dimensions", "document_task", "query_task"],
        }
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
        HttpRequest::post(url(embedder, BASE, "/embeddings"), body)
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
    fn facts(&self) -> RerankFacts {
        RerankFacts { model: Some("rerank-2.5"), path: "/rerank", max_batch: 1000 }
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
