//! Embedding and counting the tokens of texts.

use super::sql::services;
use super::{default_embedder, embedder_access};
use crate::gateway::client;
use crate::settings;
use crate::tenants::bindings;
use kb_types::Kind;
use kb_types::error::Result;

/// Returns a vector of the embedder's dimension for each text, in order.
pub fn embed(embedder: &str, texts: &[String], kind: Kind) -> Result<Vec<Vec<f32>>> {
    let embedder = services::embedder(embedder)?;
    let mut vectors = Vec::with_capacity(texts.len());
    let tenant = bindings::current()?;
    let access = embedder_access(&embedder, &tenant)?;
    for part in client::parts(&embedder, texts) {
        let (whose, timeout) = (client::this_client(&tenant, 0), settings::gateway_timeout());
        let answer = client::embed(&embedder, &access, kind, part.to_vec(), whose, timeout)?;
        vectors.extend(answer.numbers().chunks(embedder.dimension).map(<[f32]>::to_vec));
    }
    Ok(vectors)
}

/// Counts the tokens of a text with the tokenizer of an embedder. None is the default embedder.
pub fn count_tokens(text: &str, embedder: Option<&str>) -> Result<u32> {
    let id = embedder.map_or_else(default_embedder, |id| Ok(id.to_string()))?;
    let texts = vec![text.to_string()];
    let counts = client::count_tokens(&services::embedder(&id)?, texts, settings::gateway_timeout())?;
    Ok(counts.into_iter().sum())
}
