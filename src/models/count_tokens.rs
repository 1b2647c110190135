//! kb.count_tokens.

use crate::gateway::client;
use crate::models::sql::embedders;
use crate::settings;
use kb_types::error::Result;

/// The tokens of a text as an embedder (the default one when None) counts them.
pub fn count_tokens(text: &str, embedder: Option<&str>) -> Result<u32> {
    let id = embedder.map_or_else(settings::default_embedder, str::to_string);
    let counts =
        client::count_tokens(&embedders::get(&id)?, vec![text.to_string()], settings::gateway_timeout())?;
    Ok(counts.into_iter().sum())
}
