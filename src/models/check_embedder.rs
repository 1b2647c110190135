//! kb.check_embedder.

use crate::gateway::client;
use crate::models::embedder_access::access;
use crate::models::sql::embedders;
use crate::settings;
use crate::tenants::bindings;
use kb_types::Kind;
use kb_types::error::Result;
use std::time::Instant;

/// The result of embedding a probe text.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    pub dimension: Option<usize>,
    pub latency_ms: f64,
    pub problem: Option<String>,
}

/// Embeds a probe text; a failure is an answer, not an error.
pub fn check_embedder(id: &str) -> Result<Check> {
    let embedder = embedders::get(id)?;
    let begun = Instant::now();
    // A text that no cache has, so that the model is really asked.
    let nanos = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos());
    let tenant = bindings::current()?;
    let answer = access(&embedder, &tenant).and_then(|access| {
        let (texts, whose) = (vec![format!("probe {nanos}")], client::this_client(&tenant, 0));
        client::embed(&embedder, &access, Kind::Query, texts, whose, settings::gateway_timeout())
    });
    let latency_ms = begun.elapsed().as_secs_f64() * 1000.0;
    Ok(match answer {
        Ok(vectors) => Check { dimension: Some(vectors.dimension), latency_ms, problem: None },
        Err(error) => {
            let hint = error.hint().map(|h| format!(" {h}")).unwrap_or_default();
            Check { dimension: None, latency_ms, problem: Some(format!("{error}.{hint}")) }
        }
    })
}
