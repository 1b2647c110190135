//! kb.tenant_roles: the tenants for which roles may act, and the tenant for which the session acts.

use crate::pg::spi::{self, Arg};
use crate::pg::{role, tenant_roles};
use crate::settings;
use kb_types::error::{Error, Result};
use kb_types::id;
use kb_types::tenancy::{Refusal, SHARED, acting_for};

/// Members of this role decide whose rows are shared.
const ADMIN: &str = "kb_admin";

/// The tenant for which the session acts. Returns an error if the setting is not the name of a tenant, or
/// names one for which the session's roles may not act.
pub fn current() -> Result<String> {
    let tenant = acting_for(&settings::tenant(), tenant_roles::allowed().as_deref()).map_err(refused)?;
    if let Some(problem) = id::tenant_problem(&tenant) {
        return Err(Error::Argument { argument: "kb.tenant", problem });
    }
    if tenant == SHARED && !role::caller_is(ADMIN) {
        return Err(Error::Permission {
            problem: format!(
                "only members of {ADMIN} may act for tenant \"{SHARED}\"; every tenant can read its rows"
            ),
        });
    }
    Ok(tenant)
}

fn refused(refusal: Refusal) -> Error {
    Error::Tenant {
        problem: match refusal {
            Refusal::Outside { asked } => format!("this role is not bound to tenant \"{asked}\""),
            Refusal::Unset => {
                "this role is bound to several tenants, and kb.tenant does not select one".into()
            }
            Refusal::NothingInCommon => {
                "the roles that this session acts as are bound to different tenants".into()
            }
        },
    }
}

/// The tenants whose rows the session may read.
pub fn visible() -> Result<Vec<String>> {
    Ok(vec![current()?, SHARED.into()])
}

/// The tenants for which the session may act, or None if it may act for any.
pub fn allowed() -> Option<Vec<String>> {
    tenant_roles::allowed()
}

/// Whether a role may act for a tenant.
pub fn may_act_for(role: &str, tenant: &str) -> bool {
    tenant_roles::of_name(role).is_none_or(|bound| bound.iter().any(|bound| bound == tenant))
        && (tenant != SHARED || role::is(role, ADMIN))
}

/// Binds a role to a tenant. Returns false if it was bound already. Must run as the owner.
pub fn bind(role_name: &str, tenant_id: &str) -> Result<bool> {
    // The role of this name may not be the one that was bound; the trigger finds out.
    spi::write_value(
        "INSERT INTO kb.tenant_roles AS t (role_name, tenant_id) VALUES ($1::name, $2)
         ON CONFLICT (role_name, tenant_id) DO UPDATE SET role = EXCLUDED.role RETURNING t.xmax = 0",
        &[Arg::Text(role_name), Arg::Text(tenant_id)],
    )
}

/// Removes a role's binding to a tenant, or all of its bindings for None. Returns the number of bindings
/// removed. Must run as the owner.
pub fn unbind(role_name: &str, tenant_id: Option<&str>) -> Result<i64> {
    // The oid finds a role that was renamed since.
    let unbound = spi::execute(
        "DELETE FROM kb.tenant_roles
         WHERE (role_name = $1::name OR role = (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = $1::name))
           AND ($2 IS NULL OR tenant_id = $2)",
        &[Arg::Text(role_name), Arg::TextOrNull(tenant_id)],
    )?;
    Ok(unbound as i64)
}
