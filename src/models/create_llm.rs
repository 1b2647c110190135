//! kb.create_llm.

use super::create_reranker::create;
use crate::models::service_settings::WantedService;
use kb_types::error::{Object, Result};

/// Checks everything, and reports all problems at once.
pub fn create_llm(id: &str, wanted: WantedService) -> Result<()> {
    create(Object::Llm, id, wanted)
}
