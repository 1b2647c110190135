//! kb.set_quota.

use crate::error::{Error, Result};
use crate::model::id;
use crate::model::quota::Quota;
use crate::pg::role::as_owner;
use crate::pg::wake;
use crate::store::{quotas, tenants};

/// Sets what a tenant may have; without any limit it may have all.
pub fn set_quota(tenant: &str, quota: Quota) -> Result<()> {
    if tenants::allowed().is_some() {
        return Err(Error::Permission {
            problem: "a role that is bound to tenants does not say what tenants may have".into(),
        });
    }
    if let Some(problem) = id::tenant_problem(tenant) {
        return Err(Error::Argument { argument: "tenant", problem });
    }
    let limits = [
        ("bytes", quota.bytes),
        ("documents", quota.documents),
        ("document_bytes", quota.document_bytes),
        ("knowledge_bases", quota.knowledge_bases),
        ("tokens_per_day", quota.tokens_per_day),
    ];
    for (argument, limit) in limits {
        if let Some(limit) = limit.filter(|limit| *limit < 0) {
            return Err(Error::Argument { argument, problem: format!("{limit} is below 0") });
        }
    }
    as_owner(|| {
        if quota == Quota::default() {
            return quotas::delete(tenant);
        }
        quotas::set(tenant, &quota)?;
        quotas::count_again(tenant)?;
        // The worker counts once more when nobody is left who does not know of it.
        wake::at_commit(0);
        Ok(())
    })
}
