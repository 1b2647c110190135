//! kb.create_reranker.

use crate::models::service_settings;
use crate::models::service_settings::WantedService;
use crate::models::sql::{origins, services};
use crate::pg::role::as_owner;
use kb_types::error::{Error, Object, Result};

/// Checks everything, and reports all problems at once.
pub fn create_reranker(id: &str, wanted: WantedService) -> Result<()> {
    create(Object::Reranker, id, wanted)
}

/// Adds a reranker or a chat model.
pub fn create(what: Object, id: &str, wanted: WantedService) -> Result<()> {
    let row = service_settings::check(what, id, wanted)?;
    let inserted = as_owner(|| {
        if service_settings::is_remote(what, &row.provider) {
            origins::adopt_if_none()?;
        }
        services::insert(what, &row)
    })?;
    if inserted { Ok(()) } else { Err(Error::AlreadyExists { what, id: id.into() }) }
}
