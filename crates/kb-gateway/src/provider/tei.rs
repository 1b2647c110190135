//! A Text Embeddings Inference server with a reranker.
//! <https://huggingface.github.io/text-embeddings-inference/>

use super::{Address, Answer, Provider, RerankApi, Unusable, read};
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
    fn model(&self) -> Option<&'static str> {
        Some("")
    }

    fn path(&self) -> &'static str {
        "/rerank"
    }

    /// The server's default for --max-client-batch-size.
    fn max_batch(&self) -> usize {
        32
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
