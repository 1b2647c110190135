//! Which tenant the session acts for, and kb.tenant_roles, which says which ones roles may act for.

use crate::pg::spi::{self, Arg};
use crate::pg::{role, tenant_roles};
use crate::settings;
use kb_types::error::{Error, Result};
use kb_types::id;
use kb_types::tenancy::{Refusal, SHARED, acting_for};

/// Whose rows are shared is decided by members of this role.
const ADMIN: &str = "kb_admin";

/// The tenant that the session acts for. An error if the setting is no name of a tenant, or of one that the session's roles
/// may not act for.
pub fn current() -> Result<String> {
    let tenant = acting_for(&settings::tenant(), tenant_roles::allowed().as_deref()).map_err(refused)?;
    if let Some(problem) = id::tenant_problem(&tenant) {
        return Err(Error::Argument { argument: "kb.tenant", problem });
    }
    if tenant == SHARED && !role::caller_is(ADMIN) {
        return Err(Error::Permission {
            problem: format!(
                "tenant \"{SHARED}\" is for members of {ADMIN} to act for; its rows are read as any tenant"
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
                "this role is bound to several tenants, and kb.tenant does not say which".into()
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

/// The tenants that the session may act for; None: any.
pub fn allowed() -> Option<Vec<String>> {
    tenant_roles::allowed()
}

/// Whether what a role does may be done for a tenant.
pub fn may_act_for(role: &str, tenant: &str) -> bool {
    tenant_roles::of_name(role).is_none_or(|bound| bound.iter().any(|bound| bound == tenant))
        && (tenant != SHARED || role::is(role, ADMIN))
}

/// Binds a role to a tenant. False: it was. As the owner.
pub fn bind(role_name: &str, tenant_id: &str) -> Result<bool> {
    // A role of that name may be another one than when it was bound: the trigger finds out.
    let is_new = spi::write_one(
        "INSERT INTO kb.tenant_roles AS t (role_name, tenant_id) VALUES ($1::name, $2)
         ON CONFLICT (role_name, tenant_id) DO UPDATE SET role = EXCLUDED.role RETURNING t.xmax = 0",
        &[Arg::Text(role_name), Arg::Text(tenant_id)],
        |row| row.get(0),
    )?;
    Ok(is_new == Some(true))
}

/// Ends a role's binding to a tenant, or with None to all. Returns how many there were. As the owner.
pub fn unbind(role_name: &str, tenant_id: Option<&str>) -> Result<i64> {
    // A role that was renamed since is found by its oid.
    let unbound = spi::execute(
        "DELETE FROM kb.tenant_roles
         WHERE (role_name = $1::name OR role = (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = $1::name))
           AND ($2 IS NULL OR tenant_id = $2)",
        &[Arg::Text(role_name), Arg::TextOrNull(tenant_id)],
    )?;
    Ok(unbound as i64)
}
