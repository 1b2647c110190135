//! Access to an embedder: its key, and whether this database may spend money at providers.

use super::endpoint_access::{self, Called};
use crate::models::sql::embedders;
use crate::pg::role::as_owner;
use kb_gateway::protocol::{Access, Capability};
use kb_gateway::provider;
use kb_types::Embedder;
use kb_types::error::{Error, Result};

/// The credentials that go to the gateway with every request of a tenant; empty for local models, which need none. Errors:
/// see [`endpoint_access::access`].
pub fn access(embedder: &Embedder, tenant: &str) -> Result<Access> {
    if provider::find(&embedder.provider).is_none() {
        return Ok(Access::default());
    }
    let others = as_owner(|| embedders::other_columns(&embedder.id))?;
    let called = Called {
        capability: Capability::Embed,
        id: embedder.id.clone(),
        secret: others.secret,
        secret_host: others.secret_host,
        has_budget: embedder.config.remote.daily_token_budget.is_some(),
    };
    let paused = |problem, retry_after_ms| Error::Paused {
        embedder: embedder.id.clone(),
        problem,
        retry_after_ms,
        of_tenant: false,
    };
    let wrong = |problem| Error::configuration(format!("embedder \"{}\"", embedder.id), vec![problem]);
    endpoint_access::access(&called, tenant, paused, wrong)
}
