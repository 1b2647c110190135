//! kb.alter_reranker.

use crate::models::service_settings;
use crate::models::service_settings::WantedService;
use crate::models::sql::services;
use crate::pg::report;
use crate::pg::role::as_owner;
use kb_types::error::{Object, Result};

/// A secret stays bound to the host that it was given for.
pub fn alter_reranker(id: &str, wanted: WantedService) -> Result<()> {
    alter(Object::Reranker, id, wanted)
}

/// Changes a reranker or a chat model.
pub fn alter(what: Object, id: &str, wanted: WantedService) -> Result<()> {
    let before = services::get(what, id)?;
    let is_given = wanted.secret.is_some();
    let merged = WantedService {
        provider: Some(before.provider),
        model: wanted.model.or(Some(before.model)),
        base_url: wanted.base_url.or(before.base_url),
        secret: wanted.secret.or(before.secret),
        config: Some(wanted.config.unwrap_or(before.config)),
    };
    let mut after = service_settings::check(what, id, merged)?;
    if !is_given {
        after.secret_host = before.secret_host.filter(|bound| after.secret_host.as_ref() == Some(bound));
    }
    if after.secret.is_some() && after.secret_host.is_none() {
        report::notice(&format!(
            "the secret of {what} \"{id}\" was given for another host and is sent to none until it is given again: \
             kb.alter_{what}(…, secret => …)"
        ));
    }
    as_owner(|| services::update(what, &after))
}
