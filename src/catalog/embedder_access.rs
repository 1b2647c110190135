//! Access to an embedder: its key, and whether this database may spend money at providers.

use crate::error::{Error, Result};
use crate::gateway::endpoint::secret_reference::Reference;
use crate::gateway::protocol::{Access, Spent};
use crate::gateway::provider;
use crate::model::Embedder;
use crate::pg::role::as_owner;
use crate::settings;
use crate::store::{embedders, origins, quotas, secrets, usage};

/// How often a worker checks whether a restore has been acknowledged.
const RESTORED_PAUSE_MS: u64 = 10_000;

/// How often a worker checks whether a sealed secret can be opened.
const SEALED_PAUSE_MS: u64 = 10_000;

/// The credentials that go to the gateway with every request of a tenant; empty for local models, which need none.
///
/// Errors: `Paused` in a restored or cloned database until the restore is acknowledged, and while the key that opens its
/// sealed secret is missing. Both concern the server, so no document fails for them.
pub fn access(embedder: &Embedder, tenant: &str) -> Result<Access> {
    if provider::find(&embedder.provider).is_none() {
        return Ok(Access::default());
    }
    as_owner(|| {
        if !origins::is_own()? {
            return Err(Error::Paused {
                embedder: embedder.id.clone(),
                problem: "this database was restored or cloned from another, and spends nothing until \
                          SELECT kb.acknowledge_restore()"
                    .into(),
                retry_after_ms: RESTORED_PAUSE_MS,
                of_tenant: false,
            });
        }
        let others = embedders::other_columns(&embedder.id)?;
        let reference = others.secret.as_deref().map(Reference::parse).transpose();
        let reference = reference.map_err(|problem| {
            Error::configuration(format!("embedder \"{}\"", embedder.id), vec![format!("secret: {problem}")])
        })?;
        let stored = match &reference {
            Some(Reference::Stored(name)) => {
                let opened = secrets::get(name)?.map(|kept| settings::sealing_keys().open(name, kept));
                opened.transpose().map_err(|problem| Error::Paused {
                    embedder: embedder.id.clone(),
                    problem: format!("secret kb:{name}: {problem}"),
                    retry_after_ms: SEALED_PAUSE_MS,
                    of_tenant: false,
                })?
            }
            _ => None,
        };
        let mut spent = match embedder.config.remote.daily_token_budget {
            Some(_) => usage::today(&embedder.id, tenant)?,
            None => Spent::default(),
        };
        if let Some(quota) = quotas::of(tenant).and_then(|quota| quota.tokens_per_day) {
            spent.quota = Some(u64::try_from(quota).unwrap_or(0));
            (spent.day, spent.of_quota) = usage::today_of_tenant(tenant)?;
        }
        Ok(Access { reference, stored, host: others.secret_host, spent })
    })
}
