//! Asking rerankers and chat models, as a question or a check does.

use crate::gateway::client;
use crate::models::endpoint_access;
use crate::models::endpoint_access::Called;
use crate::models::sql::services;
use crate::models::sql::services::ServiceRow;
use crate::tenants::bindings;
use kb_gateway::protocol::{Access, Capability, Prompt};
use kb_types::error::{Error, Object, Result};
use kb_types::{Llm, Reranker};
use std::time::Duration;

/// A reranker with the chat model that it asks, if it does.
pub struct Chosen {
    reranker: Reranker,
    row: ServiceRow,
    llm: Option<(Llm, ServiceRow)>,
}

impl Chosen {
    /// Bytes of a text at most that are sent to the gateway.
    pub fn longest_text(&self) -> usize {
        self.reranker.config.max_chars.saturating_mul(4)
    }
}

pub fn choose(id: &str) -> Result<Chosen> {
    let row = services::get(Object::Reranker, id)?;
    let reranker = row.reranker()?;
    let llm = match &reranker.config.llm {
        Some(id) => {
            let row = services::get(Object::Llm, id)?;
            Some((row.llm()?, row))
        }
        None => None,
    };
    Ok(Chosen { reranker, row, llm })
}

/// How well each text answers a question, in order; larger is better.
pub fn scores(
    chosen: &Chosen,
    query: &str,
    texts: Vec<String>,
    kb_no: i64,
    timeout: Duration,
) -> Result<Vec<f64>> {
    let tenant = bindings::current()?;
    let Chosen { reranker, row, llm } = chosen;
    let access = match llm {
        Some((llm, row)) => access(Object::Llm, row, llm.config.remote.daily_token_budget, &tenant)?,
        None if reranker.provider == "local" => Access::default(),
        None => access(Object::Reranker, row, reranker.config.remote.daily_token_budget, &tenant)?,
    };
    // What is longer is cut by the gateway, too, by characters.
    let most = chosen.longest_text();
    let texts = texts.into_iter().map(|text| beginning(&text, most).to_string()).collect();
    let whose = client::this_client(&tenant, kb_no);
    let llm = llm.as_ref().map(|(llm, _)| llm);
    client::rerank(reranker, llm, access, beginning(query, most), texts, whose, timeout)
}

/// What a chat model answers.
pub fn chat(id: &str, prompt: Prompt, kb_no: i64, timeout: Duration) -> Result<String> {
    let row = services::get(Object::Llm, id)?;
    let tenant = bindings::current()?;
    let (llm, access) = chat_access(&row, &tenant)?;
    client::chat(&llm, access, prompt, client::this_client(&tenant, kb_no), timeout)
}

/// A chat model, and the right to ask it for a tenant.
pub fn chat_access(row: &ServiceRow, tenant: &str) -> Result<(Llm, Access)> {
    let llm = row.llm()?;
    let access = access(Object::Llm, row, llm.config.remote.daily_token_budget, tenant)?;
    Ok((llm, access))
}

fn access(what: Object, row: &ServiceRow, budget: Option<u64>, tenant: &str) -> Result<Access> {
    let called = Called {
        capability: if what == Object::Llm { Capability::Chat } else { Capability::Rerank },
        id: row.id.clone(),
        secret: row.secret.clone(),
        secret_host: row.secret_host.clone(),
        has_budget: budget.is_some(),
    };
    let wrong = |problem| Error::Service { what, id: row.id.clone(), problem, passing: false };
    let paused = |problem, _| Error::ServicePaused { what, id: row.id.clone(), problem };
    endpoint_access::access(&called, tenant, paused, wrong)
}

/// At most so many bytes of a text, whole characters.
fn beginning(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}
