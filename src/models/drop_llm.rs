//! kb.drop_llm.

use super::drop_reranker::drop_service;
use kb_types::error::{Object, Result};

/// Refused while a reranker or a knowledge base uses it.
pub fn drop_llm(id: &str) -> Result<()> {
    drop_service(Object::Llm, id, "rerankers or knowledge bases")
}
