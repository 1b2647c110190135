//! The kinds of services that a database configures, in kb.embedders, kb.rerankers, kb.llms and
//! kb.extractors.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What a model or a server at a provider is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ServiceKind {
    Embedder,
    Reranker,
    Llm,
    Extractor,
}

impl ServiceKind {
    /// As errors name it, and the SQL functions: `kb.create_llm`.
    pub fn name(self) -> &'static str {
        match self {
            ServiceKind::Embedder => "embedder",
            ServiceKind::Reranker => "reranker",
            ServiceKind::Llm => "llm",
            ServiceKind::Extractor => "extractor",
        }
    }

    /// What it is asked to do, as kb.usage names it.
    pub fn capability(self) -> &'static str {
        match self {
            ServiceKind::Embedder => "embed",
            ServiceKind::Reranker => "rerank",
            ServiceKind::Llm => "chat",
            ServiceKind::Extractor => "extract",
        }
    }
}

impl fmt::Display for ServiceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
