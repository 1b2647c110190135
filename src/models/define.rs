//! Creating, altering and dropping a service: an embedder, a reranker, a chat model or an extractor.

use super::settings::{self, WantedService};
use super::sql::origins;
use super::sql::services::{self, ServiceRow};
use crate::jobs::queue;
use crate::pg::role::as_owner;
use crate::pg::{report, wake};
use kb_types::ServiceKind;
use kb_types::error::{Error, Result};

/// Reports all problems at once.
pub fn create(kind: ServiceKind, id: &str, wanted: WantedService) -> Result<()> {
    let row = settings::check(kind, id, wanted)?;
    let inserted = as_owner(|| {
        adopt(&row)?;
        services::insert(&row)
    })?;
    if inserted { Ok(()) } else { Err(Error::AlreadyExists { what: kind.into(), id: id.into() }) }
}

/// Changes what is given, and keeps the rest. A secret stays bound to the host that it was given for. Refuses
/// a change that would give stored vectors another meaning while a knowledge base uses the embedder.
pub fn alter(kind: ServiceKind, id: &str, wanted: WantedService) -> Result<()> {
    let before = services::get(kind, id)?;
    refuse_seeded(&before, "altered")?;
    let is_secret_given = wanted.secret.is_some();
    let is_same_model = wanted.model.as_ref().is_none_or(|model| *model == before.model);
    let old = before.clone();
    let merged = WantedService {
        provider: Some(old.provider),
        model: wanted.model.or(Some(old.model)),
        dimension: wanted.dimension.or(old.dimension.filter(|_| is_same_model)),
        base_url: wanted.base_url.or(old.base_url),
        secret: wanted.secret.or(old.secret),
        config: wanted.config.or(Some(old.config)),
    };
    let mut after = settings::check(kind, id, merged)?;
    if !is_secret_given {
        after.secret_host = old.secret_host.filter(|bound| after.secret_host.as_ref() == Some(bound));
    }
    if after.secret.is_some() && after.secret_host.is_none() {
        report::notice(&format!(
            "the secret of {kind} \"{id}\" was given for another host, and is not sent until it is given again: \
             kb.alter_{kind}(…, secret => …)"
        ));
    }
    let is_embedder = kind == ServiceKind::Embedder;
    as_owner(|| {
        if is_embedder
            && before.embedder()?.fingerprint() != after.embedder()?.fingerprint()
            && services::is_used(kind, id)?
        {
            let by = "knowledge bases whose vectors this change would invalidate; create another embedder and give it \
                      to them with kb.alter_knowledge_base";
            return Err(Error::InUse { what: kind.into(), id: id.into(), by: by.into() });
        }
        adopt(&after)?;
        services::update(&after)?;
        // Jobs that waited for the embedder are tried again with its new settings.
        if is_embedder { queue::make_due_for_embedder(id) } else { Ok(()) }
    })?;
    if is_embedder {
        wake::at_commit(0);
    }
    Ok(())
}

/// Refused while a knowledge base or another service uses it.
pub fn drop(kind: ServiceKind, id: &str) -> Result<()> {
    refuse_seeded(&services::get(kind, id)?, "dropped")?;
    let by = match kind {
        ServiceKind::Embedder | ServiceKind::Reranker | ServiceKind::Extractor => "knowledge bases",
        ServiceKind::Llm => "rerankers, knowledge bases, memories or conversations",
    };
    as_owner(|| match services::is_used(kind, id)? {
        false => services::delete(kind, id),
        true => Err(Error::InUse { what: kind.into(), id: id.into(), by: by.into() }),
    })
}

/// Records with the first service at a provider that this database may spend money. Its copies may not.
fn adopt(row: &ServiceRow) -> Result<()> {
    if row.provider().is_some() { origins::adopt_if_none() } else { Ok(()) }
}

/// Refuses to change a service that comes with the extension.
fn refuse_seeded(row: &ServiceRow, verb: &str) -> Result<()> {
    let ServiceRow { kind, id, is_seeded, .. } = row;
    if !is_seeded {
        return Ok(());
    }
    Err(Error::State {
        problem: format!("{kind} \"{id}\" comes with kb and cannot be {verb}"),
        hint: format!("Create one of your own with kb.create_{kind}."),
    })
}
