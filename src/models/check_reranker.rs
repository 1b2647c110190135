//! kb.check_reranker.

use crate::models::ask;
use crate::settings;
use kb_types::error::{Error, Result};
use std::time::Instant;

/// What came of asking once.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceCheck {
    pub latency_ms: f64,
    pub problem: Option<String>,
}

impl ServiceCheck {
    pub fn of(begun: Instant, answer: Result<()>) -> ServiceCheck {
        let latency_ms = begun.elapsed().as_secs_f64() * 1000.0;
        let say = |error: Error| match error.hint() {
            Some(hint) => format!("{error}. {hint}"),
            None => format!("{error}."),
        };
        ServiceCheck { latency_ms, problem: answer.err().map(say) }
    }
}

/// Has two texts scored; a failure is an answer, not an error.
pub fn check_reranker(id: &str) -> Result<ServiceCheck> {
    let chosen = ask::choose(id)?;
    let texts = vec!["Ships lie in the harbor.".to_string(), "Bread is made of flour.".to_string()];
    let begun = Instant::now();
    let answer = ask::scores(&chosen, "Where are the ships?", texts, 0, settings::gateway_timeout());
    Ok(ServiceCheck::of(begun, answer.map(drop)))
}
