//! kb.check_llm.

use super::check_reranker::ServiceCheck;
use crate::models::ask;
use crate::models::sql::services;
use crate::settings;
use kb_gateway::protocol::Prompt;
use kb_types::error::{Object, Result};
use std::time::Instant;

/// Asks a chat model for one word; a failure is an answer, not an error.
pub fn check_llm(id: &str) -> Result<ServiceCheck> {
    services::get(Object::Llm, id)?;
    let prompt = Prompt { system: "Answer with the word yes.".into(), user: "Are you there?".into() };
    let begun = Instant::now();
    let answer = ask::chat(id, prompt, 0, settings::gateway_timeout());
    Ok(ServiceCheck::of(begun, answer.map(drop)))
}
