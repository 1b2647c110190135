//! kb.alter_llm.

use super::alter_reranker::alter;
use crate::models::service_settings::WantedService;
use kb_types::error::{Object, Result};

/// A secret stays bound to the host that it was given for.
pub fn alter_llm(id: &str, wanted: WantedService) -> Result<()> {
    alter(Object::Llm, id, wanted)
}
