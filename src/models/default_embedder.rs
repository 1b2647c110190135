//! kb.default_embedder: the embedder of a knowledge base that names none.

use super::sql::secrets;
use super::sql::services::{self, ServiceRow};
use crate::pg::role::as_owner;
use crate::settings;
use kb_gateway::endpoint::secret_reference::Reference;
use kb_types::error::Result;

/// The local model that kb.embedders has from the beginning.
const LOCAL: &str = "minilm";

/// The id that setting kb.default_embedder names; else the first embedder that was created whose key can be
/// found; else the local model.
pub fn default_embedder() -> Result<String> {
    let fixed = settings::default_embedder();
    if !fixed.is_empty() {
        return Ok(fixed);
    }
    for row in services::embedders_with_secret()? {
        if as_owner(|| has_key(&row))? {
            return Ok(row.id);
        }
    }
    Ok(LOCAL.into())
}

/// Whether the key to which an embedder refers is there, and was given for the host that it would be sent to.
fn has_key(row: &ServiceRow) -> Result<bool> {
    let Some(Ok(reference)) = row.secret.as_deref().map(Reference::parse) else { return Ok(false) };
    if row.secret_host.is_none() || row.secret_host != row.host() {
        return Ok(false);
    }
    Ok(match &reference {
        Reference::Stored(name) => {
            secrets::get(name)?.is_some_and(|kept| settings::sealing_keys().open(name, kept).is_ok())
        }
        _ => reference.resolve(&settings::secret_sources()).is_ok(),
    })
}
