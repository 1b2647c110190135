//! kb.set_quota, and kb._allowed for the view kb.quota_status.

use crate::pg::role::as_owner;
use crate::pg::wake;
use crate::tenants::quota;
use crate::tenants::sql::{bindings, quotas};
use kb_types::error::{Error, Result};
use kb_types::id;
use kb_types::quota::{Quota, Thing};

/// The number of things of a kind that the session's tenant may have, or None for no limit.
pub fn allowed(what: &str) -> Result<Option<i64>> {
    let thing = Thing::parse(what)
        .ok_or_else(|| Error::Argument { argument: "what", problem: format!("\"{what}\" is not counted") })?;
    Ok(quota::allowed(&bindings::current()?, thing))
}

/// Sets the quota of a tenant. A quota without any limit removes it.
pub fn set_quota(tenant: &str, wanted: Quota) -> Result<()> {
    if bindings::allowed().is_some() {
        return Err(Error::Permission {
            problem: "a role that is bound to tenants cannot set quotas".into(),
        });
    }
    if let Some(problem) = id::tenant_problem(tenant) {
        return Err(Error::Argument { argument: "tenant", problem });
    }
    let limits = [
        ("bytes", wanted.bytes),
        ("documents", wanted.documents),
        ("document_bytes", wanted.document_bytes),
        ("knowledge_bases", wanted.knowledge_bases),
        ("tokens_per_day", wanted.tokens_per_day),
        ("attached_tables", wanted.attached_tables),
        ("metadata_indexes", wanted.metadata_indexes),
        ("memory_entries", wanted.memory_entries),
    ];
    for (argument, limit) in limits {
        if let Some(limit) = limit.filter(|limit| *limit < 0) {
            return Err(Error::Argument { argument, problem: format!("{limit} is below 0") });
        }
    }
    as_owner(|| {
        if wanted == Quota::default() {
            return quotas::delete(tenant);
        }
        quotas::set(tenant, &wanted)?;
        quotas::count_again(tenant)?;
        // The worker counts again when the last transaction that does not know of the quota has ended.
        wake::at_commit(0);
        Ok(())
    })
}
