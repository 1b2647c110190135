//! The right to call an endpoint: its key, what was spent today, and whether this database may spend at all.
//!
//! **Invariant:** every use of a remote embedder, reranker, chat model or extractor goes through [`access`].

use super::sql::services::{self, ServiceRow};
use super::sql::{origins, secrets, usage};
use crate::jobs::queue;
use crate::pg::role::as_owner;
use crate::pg::wake;
use crate::settings;
use crate::tenants::quotas;
use kb_gateway::endpoint::egress::origin;
use kb_gateway::endpoint::secret_reference::Reference;
use kb_gateway::protocol::{Access, Spent};
use kb_gateway::provider;
use kb_types::error::{Error, Result};
use kb_types::{Embedder, ServiceKind};

/// How often a worker checks whether a restore has been acknowledged, or a sealed secret can be opened.
const PAUSE_MS: u64 = 10_000;

/// The credentials that go to the gateway with every request of a tenant. They are empty for a service that
/// needs no connection.
///
/// Returns a pause as the error in a restored or cloned database until the restore is acknowledged, and while
/// the key that opens its sealed secret is missing. Both concern the server, so no document fails for them.
pub fn access(row: &ServiceRow, tenant: &str) -> Result<Access> {
    if row.provider().is_none() {
        return Ok(Access::default());
    }
    as_owner(|| {
        if !origins::is_own()? {
            let problem = "this database was restored or cloned from another, and spends nothing until \
                           SELECT kb.acknowledge_restore()";
            return Err(paused(row, problem.into()));
        }
        let reference = row.secret.as_deref().map(Reference::parse).transpose();
        let reference = reference.map_err(|problem| wrong(row, format!("secret: {problem}")))?;
        let stored = match &reference {
            Some(Reference::Stored(name)) => {
                let opened = secrets::get(name)?.map(|kept| settings::sealing_keys().open(name, kept));
                let sealed = |problem| paused(row, format!("secret kb:{name}: {problem}"));
                opened.transpose().map_err(sealed)?
            }
            _ => None,
        };
        let mut spent = match row.remote().daily_token_budget {
            Some(_) => usage::today(row.kind, &row.id, tenant)?,
            None => Spent::default(),
        };
        if let Some(quota) = quotas::of(tenant).and_then(|quota| quota.tokens_per_day) {
            spent.quota = Some(u64::try_from(quota).unwrap_or(0));
            (spent.day, spent.of_quota) = usage::today_of_tenant(tenant)?;
        }
        Ok(Access { reference, stored, host: row.secret_host.clone(), spent })
    })
}

/// The right to ask the service of a source, which its secret opens. The secret is given together with the
/// address, so that it is bound to the address's host.
///
/// Returns a pause as the error for the same reasons as [`access`]. Without a secret nothing is paid for.
pub fn source_access(name: &str, secret: Option<&str>, url: &str) -> Result<Access> {
    let Some(secret) = secret else { return Ok(Access::default()) };
    let paused = |problem: String| Error::SourcePaused { name: name.into(), problem };
    as_owner(|| {
        if !origins::is_own()? {
            return Err(paused(
                "this database was restored or cloned from another, and opens nothing with a secret until \
                 SELECT kb.acknowledge_restore()"
                    .into(),
            ));
        }
        let reference = Reference::parse(secret).map_err(|problem| {
            Error::configuration(format!("source \"{name}\""), vec![format!("config.secret: {problem}")])
        })?;
        let stored = match &reference {
            Reference::Stored(key) => {
                let opened = secrets::get(key)?.map(|kept| settings::sealing_keys().open(key, kept));
                opened.transpose().map_err(|problem| paused(format!("secret kb:{key}: {problem}")))?
            }
            _ => None,
        };
        Ok(Access { reference: Some(reference), stored, host: origin(url), ..Access::default() })
    })
}

/// The same for an embedder. Its row is read again, because an embedder in memory may be old.
pub fn embedder_access(embedder: &Embedder, tenant: &str) -> Result<Access> {
    match provider::find(ServiceKind::Embedder, &embedder.provider) {
        Some(_) => access(&services::get(ServiceKind::Embedder, &embedder.id)?, tenant),
        None => Ok(Access::default()),
    }
}

fn paused(row: &ServiceRow, problem: String) -> Error {
    let (kind, id) = (row.kind, row.id.clone());
    match kind {
        ServiceKind::Embedder => {
            Error::Paused { embedder: id, problem, retry_after_ms: PAUSE_MS, of_tenant: false }
        }
        _ => Error::ServicePaused { kind, id, problem },
    }
}

/// The error for an invalid row.
fn wrong(row: &ServiceRow, problem: String) -> Error {
    let (kind, id) = (row.kind, row.id.clone());
    match kind {
        ServiceKind::Embedder => Error::configuration(format!("embedder \"{id}\""), vec![problem]),
        _ => Error::Service { kind, id, problem, passing: false },
    }
}

/// Allows this copy of a database to use its providers, and makes the jobs due that waited for that.
pub fn acknowledge_restore() -> Result<()> {
    as_owner(|| {
        origins::adopt()?;
        queue::make_due()
    })?;
    wake::at_commit(0);
    Ok(())
}
