//! The right to call an endpoint: its key, what was spent today, and whether this database may spend at all.
//!
//! **Invariant:** every use of a remote embedder, reranker or chat model goes through [`access`].

use crate::models::sql::{origins, secrets, usage};
use crate::pg::role::as_owner;
use crate::settings;
use crate::tenants::quotas;
use kb_gateway::endpoint::secret_reference::Reference;
use kb_gateway::protocol::{Access, Capability, Spent};
use kb_types::error::{Error, Result};

/// How often a worker checks whether a restore has been acknowledged.
const RESTORED_PAUSE_MS: u64 = 10_000;

/// How often a worker checks whether a sealed secret can be opened.
const SEALED_PAUSE_MS: u64 = 10_000;

/// What is called: a row of kb.embedders, kb.rerankers or kb.llms.
pub struct Called {
    pub capability: Capability,
    pub id: String,
    /// A reference, and the host that it is bound to.
    pub secret: Option<String>,
    pub secret_host: Option<String>,
    pub has_budget: bool,
}

/// The credentials that go to the gateway with every request of a tenant.
///
/// Errors: `paused` (why, and for how many ms) in a restored or cloned database until the restore is acknowledged, and while
/// the key that opens its sealed secret is missing. Both concern the server, so no document fails for them. `wrong`: what is
/// wrong with the row.
pub fn access(
    called: &Called,
    tenant: &str,
    paused: impl Fn(String, u64) -> Error,
    wrong: impl Fn(String) -> Error,
) -> Result<Access> {
    as_owner(|| {
        if !origins::is_own()? {
            let problem = "this database was restored or cloned from another, and spends nothing until \
                           SELECT kb.acknowledge_restore()";
            return Err(paused(problem.into(), RESTORED_PAUSE_MS));
        }
        let reference = called.secret.as_deref().map(Reference::parse).transpose();
        let reference = reference.map_err(|problem| wrong(format!("secret: {problem}")))?;
        let stored = match &reference {
            Some(Reference::Stored(name)) => {
                let opened = secrets::get(name)?.map(|kept| settings::sealing_keys().open(name, kept));
                let sealed = |problem| paused(format!("secret kb:{name}: {problem}"), SEALED_PAUSE_MS);
                opened.transpose().map_err(sealed)?
            }
            _ => None,
        };
        let mut spent = match called.has_budget {
            true => usage::today(called.capability, &called.id, tenant)?,
            false => Spent::default(),
        };
        if let Some(quota) = quotas::of(tenant).and_then(|quota| quota.tokens_per_day) {
            spent.quota = Some(u64::try_from(quota).unwrap_or(0));
            (spent.day, spent.of_quota) = usage::today_of_tenant(tenant)?;
        }
        Ok(Access { reference, stored, host: called.secret_host.clone(), spent })
    })
}
