//! A Text Embeddings Inference server with a reranker.
//! <https://huggingface.github.io/text-embeddings-inference/>

use super::{Address, Answer, Provider, RerankApi, RerankFacts, Unusable, read};
use kb_types::Reranker;
use serde_json::{Value, json};

pub const PROVIDER: Provider = Provider {
    name: "tei",
    address: Address::Given("the URL of the server"),
    needs_secret: false,
    rerank: Some(&Tei),
    ..Provider::DEFAULT
};

struct Tei;

impl RerankApi for Tei {
    /// max_batch is the server's default for --max-client-batch-size.
    fn facts(&self) -> RerankFacts {
        RerankFacts { model: Some(""), path: "/rerank", max_batch: 32 }
    }

    /// truncate is always sent, because otherwise one text that is too long would fail all.
    fn body(&self, _reranker: &Reranker, query: &str, texts: &[String]) -> Value {
        json!({"query": query, "texts": texts, "raw_scores": false, "return_text": false, "truncate": true})
    }

    fn read(&self, body: &[u8], count: usize) -> Result<Answer<Vec<f64>>, Unusable> {
        let items: Vec<Option<read::Score>> = read::parse(body)?;
        read::scores(items, None, count)
    }
}
