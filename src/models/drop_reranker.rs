//! kb.drop_reranker.

use crate::models::sql::services;
use crate::pg::role::as_owner;
use kb_types::error::{Error, Object, Result};

/// Refused while a knowledge base uses it.
pub fn drop_reranker(id: &str) -> Result<()> {
    drop_service(Object::Reranker, id, "knowledge bases")
}

/// Drops a reranker or a chat model that nothing uses.
pub fn drop_service(what: Object, id: &str, by: &str) -> Result<()> {
    services::get(what, id)?;
    as_owner(|| match services::is_used(what, id)? {
        false => services::delete(what, id),
        true => Err(Error::InUse { what, id: id.into(), by: by.into() }),
    })
}
