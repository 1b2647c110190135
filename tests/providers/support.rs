//! An embedder at the stub, and calls of it.

use crate::stub::Stub;
use kb_gateway::cancellation::CancellationToken;
use kb_gateway::embed::queue_registry::{EmbedRequest, Queues};
use kb_gateway::endpoint::access::{Access, EgressSettings};
use kb_gateway::endpoint::budget::Spent;
use kb_gateway::endpoint::egress::origin;
use kb_gateway::endpoint::secret::Secret;
use kb_gateway::endpoint::secret_reference::Reference;
use kb_gateway::endpoint::usage::Usage;
use kb_gateway::protocol::EmbedReply;
use kb_gateway::turns::{Urgency, Whose};
use kb_types::embedder::{Embedder, EmbedderConfig, Kind};
use kb_types::error::Error;
use serde_json::{Value, json};

pub const KEY: &str = "sk-test-0123456789";

/// A gateway's remote half with a runtime of its own.
pub struct Gateway {
    pub runtime: tokio::runtime::Runtime,
    pub queues: Queues,
}

impl Gateway {
    pub fn new() -> Gateway {
        Gateway::with(EgressSettings::default())
    }

    pub fn with(settings: EgressSettings) -> Gateway {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        Gateway { runtime, queues: Queues::new(settings) }
    }

    pub fn ask(
        &self,
        embedder: &Embedder,
        kind: Kind,
        texts: &[impl AsRef<str>],
    ) -> Result<EmbedReply, Error> {
        self.runtime.block_on(self.queues.embed(request(embedder, kind, Urgency::Ingest, texts)))
    }

    /// The vectors of texts all of which get one.
    pub fn vectors(&self, embedder: &Embedder, kind: Kind, texts: &[impl AsRef<str>]) -> Vec<Vec<f32>> {
        let embedded = self.ask(embedder, kind, texts).unwrap();
        assert_eq!(embedded.failed, []);
        rows(&embedded)
    }

    /// The error of the one text, and the cost of the call.
    pub fn error(&self, embedder: &Embedder, text: &str) -> (Error, Usage) {
        let mut embedded = self.ask(embedder, Kind::Document, &[text]).unwrap();
        assert_eq!(embedded.failed.len(), 1, "it got a vector");
        (embedded.failed.remove(0).1.into(), embedded.usage)
    }
}

pub fn request(embedder: &Embedder, kind: Kind, urgency: Urgency, texts: &[impl AsRef<str>]) -> EmbedRequest {
    let access = Access {
        reference: Some(Reference::Stored("test".into())),
        stored: Some(Secret::new(KEY)),
        host: embedder.base_url.as_deref().and_then(origin),
        spent: Spent::default(),
    };
    let texts = texts.iter().map(|text| text.as_ref().to_string()).collect();
    EmbedRequest {
        is_shared: false,
        embedder: embedder.clone(),
        access,
        kind,
        urgency,
        texts,
        tokens: Vec::new(),
        whose: Whose::default(),
        cancellation: CancellationToken::default(),
        reservation: None,
    }
}

pub fn rows(embedded: &EmbedReply) -> Vec<Vec<f32>> {
    embedded.vectors.numbers().chunks(embedded.vectors.dimension).map(<[f32]>::to_vec).collect()
}

/// Waits until the stub has had this many requests.
pub fn until_requests(stub: &Stub, count: usize) {
    while stub.request_count() < count {
        std::thread::yield_now();
    }
}

/// Retries that do not slow a test down.
pub fn quick() -> Value {
    json!({"retry": {"max_attempts": 3, "base_ms": 1, "max_ms": 5}, "timeout_ms": 5000})
}

/// An embedder of a provider at the stub, of dimension 8. `config` goes over that of [`quick`].
pub fn embedder(stub: &Stub, provider: &str, config: Value) -> Embedder {
    let mut all = quick();
    all.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
    if provider == "http" {
        let body = json!({"q": "{{texts}}", "m": "{{model}}", "as": "{{task}}"});
        let more = json!({"path": "/vectorise", "body": body, "items_pointer": "/out", "vector_pointer": "/v",
            "tokens_pointer": "/n", "document_task": "document", "query_task": "query"});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    }
    Embedder {
        id: format!("{provider} at the stub"),
        provider: provider.into(),
        model: "model".into(),
        dimension: 8,
        base_url: Some(stub.base_url(provider)),
        config: EmbedderConfig::parse(&all).unwrap(),
    }
}

/// Whether two vectors are the same, except for how they were written and normalised.
pub fn close(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(x, y)| (x - y).abs() < 1e-5)
}
