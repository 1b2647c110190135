//! Asking rerankers and chat models, and reranking the candidates of a question.

use super::endpoint_access::{self, Called};
use crate::gateway::client;
use crate::store::search::Target;
use crate::store::services::{self, ServiceRow};
use crate::store::tenants;
use kb_gateway::protocol::{Access, Capability, Prompt};
use kb_search::request::AnswerBounds;
use kb_search::rerank;
use kb_types::error::{Error, Object, Result};
use kb_types::{Candidate, Llm, Reranker};
use std::time::Duration;

/// A reranker with the chat model that it asks, if it does.
pub struct Chosen {
    reranker: Reranker,
    row: ServiceRow,
    llm: Option<(Llm, ServiceRow)>,
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
    let tenant = tenants::current()?;
    let Chosen { reranker, row, llm } = chosen;
    let access = match llm {
        Some((llm, row)) => access(Object::Llm, row, llm.config.remote.daily_token_budget, &tenant)?,
        None if reranker.provider == "local" => Access::default(),
        None => access(Object::Reranker, row, reranker.config.remote.daily_token_budget, &tenant)?,
    };
    // What is longer is cut by the gateway, too, by characters.
    let most = longest(reranker);
    let texts = texts.into_iter().map(|text| beginning(&text, most).to_string()).collect();
    let whose = client::this_client(&tenant, kb_no);
    let llm = llm.as_ref().map(|(llm, _)| llm);
    client::rerank(reranker, llm, access, beginning(query, most), texts, whose, timeout)
}

/// What a chat model answers.
pub fn chat(id: &str, prompt: Prompt, kb_no: i64, timeout: Duration) -> Result<String> {
    let row = services::get(Object::Llm, id)?;
    let tenant = tenants::current()?;
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

/// Bytes of a text at most that are sent to the gateway.
fn longest(reranker: &Reranker) -> usize {
    reranker.config.max_chars.saturating_mul(4)
}

/// At most so many bytes of a text, whole characters.
fn beginning(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// Candidates in the reranker's order, where the knowledge base or the call names one. If it cannot say, they stay as they
/// were, and the reason is given. `texts` gives candidates their rows.
pub fn rerank(
    target: &Target,
    bounds: &AnswerBounds,
    question: Option<&str>,
    candidates: Vec<Candidate>,
    texts: impl FnOnce(&mut [Candidate]) -> Result<()>,
) -> Result<(Vec<Candidate>, Option<String>)> {
    let Some(wanted) = &target.retrieval.rerank else { return Ok((candidates, None)) };
    let Some(question) = question else {
        let why = "the question is a vector, and has no words for a reranker to read";
        return Ok((candidates, Some(why.into())));
    };
    let chosen = match choose(&wanted.reranker) {
        Ok(chosen) => chosen,
        Err(error) => return Ok((candidates, Some(error.to_string()))),
    };
    let most = bounds.top_k.saturating_mul(wanted.retrieval_factor);
    let mut split = rerank::split(candidates, bounds, most);
    texts(&mut split.read)?;
    split.keep_what_fits(longest(&chosen.reranker));
    if split.read.is_empty() {
        return Ok((split.unchanged(), None));
    }
    let timeout = Duration::from_millis(wanted.timeout_ms);
    Ok(match scores(&chosen, question, split.texts(), target.kb_no, timeout) {
        Ok(scores) => (split.by(&scores), None),
        Err(error) => (split.unchanged(), Some(error.to_string())),
    })
}
