//! SQL functions over tenants: the tenant for which a session acts, bindings of roles, and quotas.

use crate::pg::function_arguments::required;
use crate::pg::report::reported;
use crate::pg::trigger::Firing;

use kb_types::quota::Quota;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(stable, parallel_restricted)]
fn current_tenant() -> Result<String, ErrorReport> {
    reported(crate::tenants::current_tenant::current_tenant)
}

#[pg_extern(stable, parallel_restricted)]
fn visible_tenants() -> Result<Vec<String>, ErrorReport> {
    reported(crate::tenants::current_tenant::visible_tenants)
}

#[pg_extern(stable, parallel_restricted)]
fn readable_tenants() -> Result<Vec<String>, ErrorReport> {
    reported(crate::tenants::current_tenant::readable_tenants)
}

#[pg_extern(stable, parallel_restricted)]
fn bound_tenants() -> Option<Vec<String>> {
    crate::tenants::current_tenant::bound_tenants()
}

#[pg_extern(volatile, parallel_unsafe)]
fn bind_role(role_name: Option<&str>, tenant: Option<&str>) -> Result<bool, ErrorReport> {
    reported(|| {
        crate::tenants::bind_role::bind_role(required("role_name", role_name)?, required("tenant", tenant)?)
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn unbind_role(role_name: Option<&str>, tenant: default!(Option<&str>, "NULL")) -> Result<i64, ErrorReport> {
    reported(|| crate::tenants::bind_role::unbind_role(required("role_name", role_name)?, tenant))
}

/// The number of things of a kind that the session's tenant may have, or NULL for no limit.
#[pg_extern(stable, parallel_restricted)]
fn _allowed(what: Option<&str>) -> Result<Option<i64>, ErrorReport> {
    reported(|| crate::tenants::set_quota::allowed(required("what", what)?))
}

#[allow(clippy::too_many_arguments)]
#[pg_extern(volatile, parallel_unsafe)]
fn set_quota(
    tenant: Option<&str>,
    bytes: default!(Option<i64>, "NULL"),
    documents: default!(Option<i64>, "NULL"),
    document_bytes: default!(Option<i64>, "NULL"),
    knowledge_bases: default!(Option<i64>, "NULL"),
    tokens_per_day: default!(Option<i64>, "NULL"),
    attached_tables: default!(Option<i64>, "NULL"),
    metadata_indexes: default!(Option<i64>, "NULL"),
) -> Result<(), ErrorReport> {
    reported(|| {
        let quota = Quota {
            bytes,
            documents,
            document_bytes,
            knowledge_bases,
            tokens_per_day,
            attached_tables,
            metadata_indexes,
        };
        crate::tenants::set_quota::set_quota(required("tenant", tenant)?, quota)
    })
}

/// Called by the triggers of kb.tenant_roles, kb.shares and kb.quotas.
#[pg_trigger]
fn _watched_changed<'a>(
    trigger: &'a PgTrigger<'a>,
) -> Result<Option<PgHeapTuple<'a, AllocatedByRust>>, ErrorReport> {
    reported(|| {
        let firing = Firing::of(trigger)?;
        crate::tenants::watched_changed::watched_changed(&firing);
        Ok(None)
    })
}
