//! SQL functions over tenants: the tenant for which a session acts, bindings of roles, and quotas.

use crate::pg::function_arguments::required;
use crate::pg::report::reported;
use crate::pg::table_cache;
use crate::pg::trigger::Firing;
use crate::tenants::{bind_role, bindings, set_quota, shares};
use kb_types::quota::Quota;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// The tenant for which the session acts.
#[pg_extern(stable, parallel_restricted)]
fn current_tenant() -> Result<String, ErrorReport> {
    reported(bindings::current)
}

/// The tenants whose rows the session may read without exception.
#[pg_extern(stable, parallel_restricted)]
fn visible_tenants() -> Result<Vec<String>, ErrorReport> {
    reported(bindings::visible)
}

/// The tenants of which the session may read at least some rows.
#[pg_extern(stable, parallel_restricted)]
fn readable_tenants() -> Result<Vec<String>, ErrorReport> {
    reported(shares::readable_owners)
}

/// The tenants for which the session may act, or NULL if it may act for any.
#[pg_extern(stable, parallel_restricted)]
fn bound_tenants() -> Option<Vec<String>> {
    bindings::allowed()
}

#[pg_extern(volatile, parallel_unsafe)]
fn bind_role(role_name: Option<&str>, tenant: Option<&str>) -> Result<bool, ErrorReport> {
    reported(|| bind_role::bind_role(required("role_name", role_name)?, required("tenant", tenant)?))
}

#[pg_extern(volatile, parallel_unsafe)]
fn unbind_role(role_name: Option<&str>, tenant: default!(Option<&str>, "NULL")) -> Result<i64, ErrorReport> {
    reported(|| bind_role::unbind_role(required("role_name", role_name)?, tenant))
}

/// The number of things of a kind that the session's tenant may have, or NULL for no limit.
#[pg_extern(stable, parallel_restricted)]
fn _allowed(what: Option<&str>) -> Result<Option<i64>, ErrorReport> {
    reported(|| set_quota::allowed(required("what", what)?))
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
    memory_entries: default!(Option<i64>, "NULL"),
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
            memory_entries,
        };
        set_quota::set_quota(required("tenant", tenant)?, quota)
    })
}

/// Called by the triggers of kb.tenant_roles, kb.shares and kb.quotas: every session reads the table again.
#[pg_trigger]
fn _watched_changed<'a>(
    trigger: &'a PgTrigger<'a>,
) -> Result<Option<PgHeapTuple<'a, AllocatedByRust>>, ErrorReport> {
    reported(|| {
        let firing = Firing::of(trigger)?;
        table_cache::changed(firing.relation());
        Ok(None)
    })
}
