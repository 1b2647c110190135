//! kb.bind_role and kb.unbind_role.

use crate::pg::role::{self, as_owner};
use crate::tenants::sql::bindings;
use kb_types::error::{Error, ObjectKind, Result};
use kb_types::id;

/// The roles that CREATE EXTENSION makes. Every user of kb has the rights of one of them.
const GROUPS: [&str; 4] = ["kb_reader", "kb_writer", "kb_admin", "kb_vectors"];

/// Binds a role to a tenant. Returns false if it was bound already.
pub fn bind_role(role_name: &str, tenant: &str) -> Result<bool> {
    check_caller()?;
    let refused = |problem: String| Err(Error::Argument { argument: "role_name", problem });
    if let Some(problem) = id::tenant_problem(tenant) {
        return Err(Error::Argument { argument: "tenant", problem });
    }
    match role::bypasses(role_name) {
        None => return Err(Error::NotFound { what: ObjectKind::Role, id: role_name.into() }),
        Some(true) => {
            return refused(format!(
                "\"{role_name}\" is a superuser or has BYPASSRLS, so row-level security does not apply to it"
            ));
        }
        Some(false) => {}
    }
    if GROUPS.contains(&role_name) {
        return refused(format!("all users of kb have the privileges of \"{role_name}\"; bind another role"));
    }
    as_owner(|| bindings::bind(role_name, tenant))
}

/// Removes a role's binding to a tenant, or all of its bindings for None. Returns the number of bindings
/// removed.
pub fn unbind_role(role_name: &str, tenant: Option<&str>) -> Result<i64> {
    check_caller()?;
    as_owner(|| bindings::unbind(role_name, tenant))
}

fn check_caller() -> Result<()> {
    match bindings::allowed() {
        None => Ok(()),
        Some(_) => Err(Error::Permission {
            problem: "a role that is bound to tenants cannot bind or unbind roles".into(),
        }),
    }
}
