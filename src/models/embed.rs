//! kb.embed.

use crate::gateway::client;
use crate::models::embedder_access::access;
use crate::models::sql::embedders;
use crate::settings;
use crate::tenants::bindings;
use kb_types::Kind;
use kb_types::error::Result;

/// A vector per text, in order, of the embedder's dimension.
pub fn embed(embedder: &str, texts: &[String], kind: Kind) -> Result<Vec<Vec<f32>>> {
    let embedder = embedders::get(embedder)?;
    let mut vectors = Vec::with_capacity(texts.len());
    let tenant = bindings::current()?;
    let access = access(&embedder, &tenant)?;
    for part in client::parts(&embedder, texts) {
        let (whose, timeout) = (client::this_client(&tenant, 0), settings::gateway_timeout());
        let answer = client::embed(&embedder, &access, kind, part.to_vec(), whose, timeout)?;
        vectors.extend(answer.numbers().chunks(embedder.dimension).map(<[f32]>::to_vec));
    }
    Ok(vectors)
}
