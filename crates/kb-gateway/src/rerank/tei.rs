//! A Text Embeddings Inference server with a reranker.
//! <https://huggingface.github.io/text-embeddings-inference/>

use super::super::provider::parse;
use super::{Answer, Dialect, Item, Unusable, in_order};
use kb_types::Reranker;
use serde_json::{Value, json};

pub struct Tei;

impl Dialect for Tei {
    fn base_url(&self) -> Option<&'static str> {
        None
    }

    fn model(&self) -> &'static str {
        ""
    }

    fn needs_secret(&self) -> bool {
        false
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
        let items: Vec<Option<Item>> = parse(body)?;
        in_order(items, None, count)
    }
}
