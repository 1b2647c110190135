//! kb.alter_embedder.

use crate::jobs::queue;
use crate::models::embedder_settings;
use crate::models::embedder_settings::{WantedEmbedder, host, own};
use crate::models::sql::embedders;
use crate::models::sql::embedders::OtherColumns;
use crate::pg::role::as_owner;
use crate::pg::{report, wake};
use kb_types::error::{Error, Object, Result};

/// Refuses a change that would give stored vectors another meaning while a knowledge base uses the embedder. A secret
/// stays bound to the host that it was given for.
pub fn alter_embedder(id: &str, wanted: WantedEmbedder) -> Result<()> {
    let before = embedders::get(id)?;
    let others = embedders::other_columns(id)?;
    embedder_settings::refuse_seeded(id, others.seeded, "altered")?;
    let same_model = wanted.model.as_ref().is_none_or(|m| *m == before.model);
    let secret_given = wanted.secret.is_some();
    let merged = WantedEmbedder {
        provider: Some(wanted.provider.unwrap_or_else(|| before.provider.clone())),
        model: Some(wanted.model.unwrap_or_else(|| before.model.clone())),
        dimension: wanted.dimension.or(same_model.then_some(before.dimension as i32)),
        base_url: wanted.base_url.or_else(|| before.base_url.clone()),
        secret: wanted.secret.or(others.secret),
        config: Some(wanted.config.unwrap_or(others.config)),
    };
    let (after, config) = embedder_settings::check(id, &merged)?;
    let secret_host = match secret_given {
        true => host(&after),
        false => others.secret_host.filter(|bound| host(&after).as_ref() == Some(bound)),
    };
    if merged.secret.is_some() && secret_host.is_none() {
        report::notice(&format!(
            "the secret of embedder \"{id}\" was given for another host and is sent to none until it is given again: \
             kb.alter_embedder(…, secret => …)"
        ));
    }
    let others = OtherColumns { secret: merged.secret, secret_host, config, seeded: false };
    as_owner(|| {
        if after.fingerprint() != before.fingerprint() && embedders::uses(id)? > 0 {
            return Err(Error::InUse {
                what: Object::Embedder,
                id: id.into(),
                by:
                    "knowledge bases whose vectors this change would invalidate; create another embedder and \
                     give it to them with kb.alter_knowledge_base"
                        .into(),
            });
        }
        own(&after)?;
        embedders::update(&after, &others)?;
        // Jobs that waited for the embedder are tried again with its new settings.
        queue::make_due_for_embedder(id)
    })?;
    wake::at_commit(0);
    Ok(())
}
