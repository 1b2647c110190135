//! kb.create_api_key and kb.drop_api_key.

use super::key::Key;
use super::sql::{self, Identity, NewKey};
use crate::pg::role::{self, as_owner};
use crate::tenants::bindings;
use kb_http::routes::Scope;
use kb_types::error::{Error, ObjectKind, Result};
use kb_types::named::Named;
use kb_types::{id, sizes};

/// Creates a key, and returns it. Nobody can read it again.
pub fn create_api_key(name: &str, identity: Identity, expires_at: Option<i64>) -> Result<String> {
    check(name, &identity)?;
    let created_by = role::caller_name();
    as_owner(|| {
        let [id, first, second] = sql::random()?;
        let key = Key::new(id, [first, second]);
        let new = NewKey { name, identity: &identity, expires_at, created_by: &created_by };
        sql::insert(&key.id, &key.hash(), &new)?;
        Ok(key.text())
    })
}

/// A key must not be able to do what its creator cannot.
fn check(name: &str, identity: &Identity) -> Result<()> {
    let Identity { role_name, tenant_id, scopes, requests_per_minute } = identity;
    let refused = |argument, problem: String| Err(Error::Argument { argument, problem });
    if name.is_empty() || name.chars().any(char::is_control) {
        return refused("name", "must not be empty or contain control characters".into());
    }
    if let Some(problem) = sizes::problem(name.len(), id::MAX_BYTES) {
        return refused("name", problem);
    }
    if let Some(problem) = id::tenant_problem(tenant_id) {
        return refused("tenant", problem);
    }
    for scope in scopes {
        if let Err(problem) = Scope::one_of(sizes::cut(scope, id::MAX_BYTES)) {
            return refused("scopes", problem);
        }
    }
    if requests_per_minute.is_some_and(|most| most < 1) {
        return refused("requests_per_minute", "must be at least 1".into());
    }
    match role::bypasses(role_name) {
        None => return Err(Error::NotFound { what: ObjectKind::Role, id: role_name.clone() }),
        Some(true) => {
            return refused(
                "role_name",
                format!(
                    "\"{role_name}\" is a superuser or has BYPASSRLS, so row-level security does not apply to it"
                ),
            );
        }
        Some(false) => {}
    }
    if !role::is(role_name, "kb_reader") {
        return refused("role_name", format!("\"{role_name}\" does not have the privileges of kb_reader"));
    }
    if !role::caller_may_become(role_name) {
        return Err(Error::Permission {
            problem: format!("must be able to SET ROLE \"{role_name}\" to create a key for it"),
        });
    }
    let is_own = bindings::allowed().is_none_or(|allowed| allowed.contains(tenant_id));
    if !is_own || !bindings::may_act_for(role_name, tenant_id) {
        return Err(Error::Permission {
            problem: format!(
                "role \"{role_name}\" and its creator must be allowed to act for tenant \"{tenant_id}\""
            ),
        });
    }
    Ok(())
}

/// Deletes a key of the tenants for which the caller may act. Returns false if there is none of this id.
pub fn drop_api_key(key_id: &str) -> Result<bool> {
    let tenants = bindings::allowed();
    as_owner(|| sql::delete(key_id, tenants.as_deref()))
}
