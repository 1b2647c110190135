//! The caller's rights, and doing a step as another role.

use super::{pinned_settings, setting};
use kb_types::error::{Error, Object, Result};
use pgrx::pg_sys;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_int};

thread_local! {
    /// Who called kb, while it does a step as a role of its own.
    static CALLER: Cell<Option<pg_sys::Oid>> = const { Cell::new(None) };
    /// The role that it does a step for ([`as_role_of_name`]).
    static NAMED: Cell<Option<pg_sys::Oid>> = const { Cell::new(None) };
}

/// The role that reads vectors for a query: no superuser, and under row-level security (sql/roles.sql).
const VECTOR_READER: &CStr = c"kb_vectors";

/// Runs `work` as the owner of the extension, in a security-restricted context with pinned settings: for the few
/// writes that no role may do itself (catalogs that control the worker, DDL of vector tables). `work` must check what
/// the caller may do.
pub fn as_owner<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    let owner = extension_owner()?;
    for_caller(Some(caller()), || as_role(owner, || setting::with(&pinned_settings::AS_OWNER, work)))
}

/// Runs `work` as the role that may read vector tables, which no caller may. Their policies decide by the caller's
/// tenant what it sees. `work` gives the caller only what the caller may read.
pub fn as_vector_reader<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    // SAFETY: a look-up by name; a missing role is an ERROR that names it.
    let role = unsafe { pg_sys::get_role_oid(VECTOR_READER.as_ptr(), false) };
    // Policies apply, even if a superuser's session has turned them off.
    for_caller(Some(caller()), || as_role(role, || setting::with(&[(c"row_security", c"on")], work)))
}

/// Runs `work` as the role of this name, under the policies that bind it: for what somebody who is not here any more has
/// asked for. What that role wrote cannot read the session's statement (current_query), in which there may be a question. An error
/// if there is no such role.
pub fn as_role_of_name<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let role = find(name).ok_or_else(|| Error::NotFound { what: Object::Role, id: name.into() })?;
    let before = NAMED.replace(Some(role));
    let _back = Back(|| NAMED.set(before));
    // SAFETY: the pointer is only kept and set again; what it points to belongs to who runs the statement around this.
    let statement = unsafe { pg_sys::debug_query_string };
    // SAFETY: as above.
    let show = |statement| unsafe { pg_sys::debug_query_string = statement };
    show(std::ptr::null());
    let _statement = Back(|| show(statement));
    for_caller(None, || as_role(role, || setting::with_none_kept(&[(c"row_security", c"on")], work)))
}

/// Does something at the end of its scope, also where that ends by an error.
struct Back<F: FnMut()>(F);

impl<F: FnMut()> Drop for Back<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// The role of a name.
pub fn find(name: &str) -> Option<pg_sys::Oid> {
    let name = CString::new(name).ok()?;
    // SAFETY: a look-up by name; no role is InvalidOid.
    let role = unsafe { pg_sys::get_role_oid(name.as_ptr(), true) };
    (role != pg_sys::InvalidOid).then_some(role)
}

/// The roles that the session acts as: the one that logged in, the one that was SET, the one whose rights count now. While
/// kb does a step as a role of its own, the last is its caller; while it does one for another role, that role counts, too,
/// whatever functions are called then.
pub fn acting() -> [pg_sys::Oid; 4] {
    let caller = caller();
    // SAFETY: they read this process's variables.
    unsafe { [pg_sys::GetSessionUserId(), pg_sys::GetOuterUserId(), caller, NAMED.get().unwrap_or(caller)] }
}

/// Names and oids of the roles that the session acts as, each once.
pub fn acting_roles() -> (Vec<String>, Vec<i64>) {
    let roles: BTreeSet<u32> = acting().into_iter().map(pg_sys::Oid::to_u32).collect();
    roles.into_iter().filter_map(|role| Some((name_of(role.into())?, i64::from(role)))).unzip()
}

/// The name of a role; None: there is no such role.
fn name_of(role: pg_sys::Oid) -> Option<String> {
    // SAFETY: a look-up by oid; the name is copied.
    unsafe {
        let name = pg_sys::GetUserNameFromId(role, true);
        (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned())
    }
}

/// The role of this name, and the one of this oid, which may be another: a role can have got a new name, and in a restored database
/// another oid. Neither where the role is gone.
pub fn known_by(name: &str, oid: i64) -> Vec<pg_sys::Oid> {
    let by_oid =
        Some(pg_sys::Oid::from(u32::try_from(oid).unwrap_or(0))).filter(|oid| name_of(*oid).is_some());
    find(name).into_iter().chain(by_oid).collect()
}

/// Whether the caller has the rights of a role.
pub fn caller_is(name: &str) -> bool {
    is_member(caller(), name)
}

/// Whether a role, given by name, has the rights of another.
pub fn is(role: &str, name: &str) -> bool {
    find(role).is_some_and(|role| is_member(role, name))
}

fn is_member(role: pg_sys::Oid, name: &str) -> bool {
    // SAFETY: look-ups by oid.
    find(name).is_some_and(|group| unsafe { pg_sys::has_privs_of_role(role, group) })
}

/// Whether row-level security does not bind a role, given by name; None: there is no such role.
pub fn bypasses(name: &str) -> Option<bool> {
    // SAFETY: a look-up by oid.
    find(name).map(|role| unsafe { pg_sys::has_bypassrls_privilege(role) })
}

fn caller() -> pg_sys::Oid {
    // SAFETY: it reads this process's variable.
    CALLER.get().unwrap_or_else(|| unsafe { pg_sys::GetUserId() })
}

/// Runs `work` for this caller; None: for whoever it then runs as.
fn for_caller<T>(caller: Option<pg_sys::Oid>, work: impl FnOnce() -> T) -> T {
    let before = CALLER.replace(caller);
    let _back = Back(|| CALLER.set(before));
    work()
}

/// Whether row-level security does not bind the caller: a superuser, or a role with BYPASSRLS.
pub fn bypasses_policies() -> bool {
    // SAFETY: look-ups by oid.
    unsafe { pg_sys::has_bypassrls_privilege(pg_sys::GetUserId()) }
}

fn as_role<T>(role: pg_sys::Oid, work: impl FnOnce() -> Result<T>) -> Result<T> {
    // The user id is restored on return; after an ERROR the transaction's abort restores it.
    let before = become_role(role);
    let result = work();
    return_to(before);
    result
}

/// Who ran, and in which security context, before.
#[inline(never)]
fn become_role(role: pg_sys::Oid) -> (pg_sys::Oid, c_int) {
    let (mut user, mut context) = (pg_sys::InvalidOid, 0);
    let restricted = (pg_sys::SECURITY_LOCAL_USERID_CHANGE | pg_sys::SECURITY_RESTRICTED_OPERATION) as c_int;
    // SAFETY: both variables are written before they are read.
    unsafe {
        pg_sys::GetUserIdAndSecContext(&mut user, &mut context);
        pg_sys::SetUserIdAndSecContext(role, context | restricted);
    }
    (user, context)
}

#[inline(never)]
fn return_to((user, context): (pg_sys::Oid, c_int)) {
    // SAFETY: what `become_role` has read.
    unsafe { pg_sys::SetUserIdAndSecContext(user, context) };
}

/// The role that owns the extension's tables.
fn extension_owner() -> Result<pg_sys::Oid> {
    // SAFETY: look-ups by name; the tuple is read before it is released.
    unsafe {
        let schema = pg_sys::get_namespace_oid(c"kb".as_ptr(), true);
        let table = pg_sys::get_relname_relid(c"knowledge_bases".as_ptr(), schema);
        let tuple =
            pg_sys::SearchSysCache1(pg_sys::SysCacheIdentifier::RELOID as i32, pg_sys::Datum::from(table));
        if tuple.is_null() {
            return Err(Error::Internal("extension kb is not installed in this database".into()));
        }
        let header = (*tuple).t_data;
        let row = (header as *const u8).add((*header).t_hoff as usize) as *const pg_sys::FormData_pg_class;
        let owner = (*row).relowner;
        pg_sys::ReleaseSysCache(tuple);
        Ok(owner)
    }
}
