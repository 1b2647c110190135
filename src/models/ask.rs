//! Requests to rerankers, chat models and extractors, for questions and checks.

use super::access;
use super::sql::services::{self, ServiceRow};
use crate::gateway::client;
use crate::tenants::bindings;
use kb_gateway::protocol::{Access, Prompt};
use kb_types::error::Result;
use kb_types::extraction::File;
use kb_types::extractor::ServiceText;
use kb_types::{ChatReply, Dialogue, Extractor, Llm, Reranker, ServiceKind};
use std::time::Duration;

/// A reranker with the chat model that it uses, if any.
pub struct Chosen {
    row: ServiceRow,
    reranker: Reranker,
    llm: Option<(ServiceRow, Llm)>,
}

impl Chosen {
    /// The most bytes of a text that are sent to the gateway.
    pub fn longest_text(&self) -> usize {
        self.reranker.config.max_chars.saturating_mul(4)
    }
}

pub fn choose(id: &str) -> Result<Chosen> {
    let row = services::get(ServiceKind::Reranker, id)?;
    let reranker = row.reranker()?;
    let llm = match &reranker.config.llm {
        Some(id) => {
            let row = services::get(ServiceKind::Llm, id)?;
            let llm = row.llm()?;
            Some((row, llm))
        }
        None => None,
    };
    Ok(Chosen { row, reranker, llm })
}

/// Returns for each text, in order, how well it answers the question. Larger is better.
pub fn scores(
    chosen: &Chosen,
    query: &str,
    texts: Vec<String>,
    kb_no: i64,
    timeout: Duration,
) -> Result<Vec<f64>> {
    let tenant = bindings::current()?;
    let Chosen { row, reranker, llm } = chosen;
    let access = access(llm.as_ref().map_or(row, |(row, _)| row), &tenant)?;
    // The gateway shortens the texts to max_chars. This bounds the request.
    let most = chosen.longest_text();
    let texts = texts.into_iter().map(|text| beginning(&text, most).to_string()).collect();
    let whose = client::this_client(&tenant, kb_no);
    let llm = llm.as_ref().map(|(_, llm)| llm);
    client::rerank(reranker, llm, access, beginning(query, most), texts, whose, timeout)
}

/// Requests the answer of a chat model.
pub fn chat(id: &str, prompt: Prompt, kb_no: i64, timeout: Duration) -> Result<String> {
    let row = services::get(ServiceKind::Llm, id)?;
    Ok(continued(&row, prompt.into(), kb_no, timeout)?.text)
}

/// Requests the next message of a dialogue. Returns the whole reply.
pub fn continued(row: &ServiceRow, dialogue: Dialogue, kb_no: i64, timeout: Duration) -> Result<ChatReply> {
    let tenant = bindings::current()?;
    let (llm, access) = chat_access(row, &tenant)?;
    client::chat(&llm, access, dialogue, client::this_client(&tenant, kb_no), timeout)
}

/// Returns the chat model of a row and a tenant's right to use it.
pub fn chat_access(row: &ServiceRow, tenant: &str) -> Result<(Llm, Access)> {
    Ok((row.llm()?, access(row, tenant)?))
}

/// Requests the text that an extraction service finds in a file.
pub fn file_text(id: &str, file: File, timeout: Duration) -> Result<ServiceText> {
    let tenant = bindings::current()?;
    let (extractor, access) = extractor_access(id, &tenant)?;
    client::extract(extractor, access, file, client::this_client(&tenant, 0), timeout)
}

/// Returns an extraction service and a tenant's right to use it.
pub fn extractor_access(id: &str, tenant: &str) -> Result<(Extractor, Access)> {
    let row = services::get(ServiceKind::Extractor, id)?;
    Ok((row.extractor()?, access(&row, tenant)?))
}

/// Returns the first whole characters of a text in at most `most` bytes.
fn beginning(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}
