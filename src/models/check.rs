//! Checks of a service by one small request.

use super::sql::services::{self, ServiceRow};
use super::{ask, embedder_access};
use crate::gateway::client;
use crate::settings;
use crate::tenants::bindings;
use kb_gateway::file_reader;
use kb_gateway::protocol::Prompt;
use kb_types::error::Result;
use kb_types::{Kind, ServiceKind};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The result of a check.
pub struct Check {
    /// The dimension of an embedder's vector.
    pub dimension: Option<usize>,
    pub latency_ms: f64,
    pub problem: Option<String>,
}

/// Sends a service one small request. A failure is a result and not an error.
pub fn check(kind: ServiceKind, id: &str) -> Result<Check> {
    let row = services::get(kind, id)?;
    let begun = Instant::now();
    let answer = match kind {
        ServiceKind::Embedder => embed(&row).map(Some),
        ServiceKind::Reranker => rerank(id).map(|()| None),
        ServiceKind::Llm => chat(id).map(|()| None),
        ServiceKind::Extractor => {
            ask::file_text(id, file_reader::probe(), settings::gateway_timeout()).map(|_| None)
        }
    };
    let latency_ms = begun.elapsed().as_secs_f64() * 1000.0;
    Ok(match answer {
        Ok(dimension) => Check { dimension, latency_ms, problem: None },
        Err(error) => {
            let hint = error.hint().map(|hint| format!(" {hint}")).unwrap_or_default();
            Check { dimension: None, latency_ms, problem: Some(format!("{error}.{hint}")) }
        }
    })
}

/// The dimension of the vector of a text that is in no cache, so that the model itself must answer.
fn embed(row: &ServiceRow) -> Result<usize> {
    let embedder = row.embedder()?;
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let tenant = bindings::current()?;
    let access = embedder_access(&embedder, &tenant)?;
    let (texts, whose) = (vec![format!("probe {nanos}")], client::this_client(&tenant, 0));
    let timeout = settings::gateway_timeout();
    Ok(client::embed(&embedder, &access, Kind::Query, texts, whose, timeout)?.dimension)
}

fn rerank(id: &str) -> Result<()> {
    let chosen = ask::choose(id)?;
    let texts = vec!["Ships lie in the harbor.".to_string(), "Bread is made of flour.".to_string()];
    ask::scores(&chosen, "Where are the ships?", texts, 0, settings::gateway_timeout()).map(drop)
}

fn chat(id: &str) -> Result<()> {
    let prompt = Prompt { system: "Answer with the word yes.".into(), user: "Are you there?".into() };
    ask::chat(id, prompt, 0, settings::gateway_timeout()).map(drop)
}
