//! The vector of a question, or of another text that is compared with the chunks of a knowledge base.

use crate::gateway::client;
use crate::models::embedder_access;
use crate::query::sql::search::SearchTarget;
use crate::settings;
use crate::tenants::bindings;
use kb_types::Kind;
use kb_types::error::Result;

/// The vector of as much of a text as the model reads: all of it, a half, a quarter or an eighth.
pub fn beginning(target: &SearchTarget, kind: Kind, text: &str) -> Option<Vec<f32>> {
    let parts = (0..4).map(|times| text[..text.floor_char_boundary(text.len() >> times)].to_string());
    parts.into_iter().find_map(|part| embed(target, kind, &[part]).ok()?.pop())
}

/// The vectors of texts, in order.
pub fn embed(target: &SearchTarget, kind: Kind, texts: &[String]) -> Result<Vec<Vec<f32>>> {
    if texts.is_empty() {
        return Ok(Vec::new());
    }
    let timeout = settings::gateway_timeout();
    let tenant = bindings::current()?;
    let access = embedder_access(&target.embedder, &tenant)?;
    let whose = client::this_client(&tenant, target.kb_no);
    let vectors = client::embed(&target.embedder, &access, kind, texts.to_vec(), whose, timeout)?;
    Ok(vectors.numbers().chunks(target.embedder.dimension).map(<[f32]>::to_vec).collect())
}
