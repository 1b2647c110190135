//! The tenants to which the roles of the session are bound, from kb.tenant_roles.

use super::role;
use super::row::Row;
use super::table_cache::{self, TableCache};
use kb_types::error::Result;
use kb_types::tenancy::{BoundTenants, in_common};
use pgrx::datum::FromDatum;
use pgrx::pg_sys;
use std::cell::RefCell;
use std::ffi::CStr;
use std::rc::Rc;

thread_local! {
    static BOUND: RefCell<TableCache<pg_sys::Oid, BoundTenants>> = RefCell::default();
}

/// The tenants for which the session may act, or None if it may act for any. A role is bound as the roles are
/// whose rights it has. The login role, the role of SET ROLE, and the role whose rights apply now (the owner
/// of a SECURITY DEFINER function) must all be allowed to act for a tenant.
pub fn allowed() -> Option<Vec<String>> {
    in_common(&role::acting().map(of))
}

/// The tenants to which the role of this name is bound. A role that does not exist is bound to no tenant.
pub fn of_name(name: &str) -> BoundTenants {
    role::find(name).map_or_else(|| Some(Rc::from([])), of)
}

/// Whether a role, given by the name and the oid that it had, may act for a tenant. Returns None if the role
/// no longer exists.
pub fn may_act_for(name: &str, oid: i64, tenant: &str) -> Option<bool> {
    let known = role::known_by(name, oid);
    let may = |role: &pg_sys::Oid| of(*role).is_none_or(|bound| bound.iter().any(|bound| bound == tenant));
    (!known.is_empty()).then(|| known.iter().all(may))
}

/// A superuser is never bound.
fn of(role: pg_sys::Oid) -> BoundTenants {
    table_cache::get(&BOUND, &role, || {
        // SAFETY: a look-up by oid.
        if unsafe { pg_sys::superuser_arg(role) } {
            return None;
        }
        let mut tenants = Vec::new();
        table_cache::scan(c"tenant_roles", None, |row| {
            if binds(row, role)? {
                tenants.push(row.get("tenant_id")?);
            }
            Ok(())
        });
        tenants.sort();
        tenants.dedup();
        (!tenants.is_empty()).then(|| tenants.into())
    })
}

/// Whether a row binds a role: the row names the role, or one whose rights the role has. The oid still
/// identifies a role that was renamed, and the name one of a restored dump.
fn binds(row: &Row, role: pg_sys::Oid) -> Result<bool> {
    // SAFETY: the column is of type name; look-ups by name and oid.
    let by_name = unsafe {
        row.raw("role_name")?
            .and_then(|name| <&CStr>::from_datum(name, false))
            .map_or(pg_sys::InvalidOid, |name| pg_sys::get_role_oid(name.as_ptr(), true))
    };
    let by_oid = row.raw("role")?.map_or(pg_sys::InvalidOid, |oid| pg_sys::Oid::from(oid.value() as u32));
    Ok([by_name, by_oid].into_iter().any(|bound| {
        // SAFETY: a look-up by oid. A role that does not exist has no members.
        bound != pg_sys::InvalidOid && unsafe { pg_sys::has_privs_of_role(role, bound) }
    }))
}
