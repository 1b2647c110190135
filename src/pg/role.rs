//! The rights of the caller, and work that is done as another role.

use super::{pinned_settings, setting};
use kb_types::error::{Error, ObjectKind, Result};
use pgrx::pg_sys;
// From PostgreSQL 16 on, a member may not always SET ROLE.
#[cfg(feature = "pg15")]
use pgrx::pg_sys::is_member_of_role as may_set_role;
#[cfg(not(feature = "pg15"))]
use pgrx::pg_sys::member_can_set_role as may_set_role;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_int};

thread_local! {
    /// The role that called kb, while kb does a step as a role of its own.
    static CALLER: Cell<Option<pg_sys::Oid>> = const { Cell::new(None) };
    /// The role for which kb does a step ([`as_role_of_name`]).
    static NAMED: Cell<Option<pg_sys::Oid>> = const { Cell::new(None) };
}

/// The role that reads vectors for a query. It is no superuser, and row-level security applies to it
/// (sql/roles.sql).
const VECTOR_READER: &CStr = c"kb_vectors";

/// Runs `work` as the owner of the extension, in a security-restricted context with pinned settings. This is
/// for the few writes that no role may do itself (tables that control the worker, DDL of vector tables).
/// `work` must check what the caller may do.
pub fn as_owner<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    let owner = extension_owner()?;
    for_caller(Some(caller()), || as_role(owner, || setting::with(&pinned_settings::AS_OWNER, work)))
}

/// Runs `work` as the role that may read vector tables; callers may not read them. The policies of these
/// tables admit rows by the caller's tenant. `work` must return to the caller only what the caller may read.
pub fn as_vector_reader<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    // SAFETY: a look-up by name; a missing role is an ERROR that names it.
    let role = unsafe { pg_sys::get_role_oid(VECTOR_READER.as_ptr(), false) };
    // Policies apply even if the session of a superuser has turned them off.
    for_caller(Some(caller()), || as_role(role, || setting::with(&[(c"row_security", c"on")], work)))
}

/// Runs `work` as the role of this name, under the policies that apply to it, to carry out what somebody
/// asked for in an earlier session. Code of that role cannot read the statement of this session
/// (current_query), which may contain a question. Returns an error if the role does not exist.
pub fn as_role_of_name<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let role = find(name).ok_or_else(|| Error::NotFound { what: ObjectKind::Role, id: name.into() })?;
    let before = NAMED.replace(Some(role));
    let _back = Back(|| NAMED.set(before));
    // SAFETY: the pointer is only kept and set again. Its target belongs to the code that runs the outer
    // statement.
    let statement = unsafe { pg_sys::debug_query_string };
    // SAFETY: as above.
    let show = |statement| unsafe { pg_sys::debug_query_string = statement };
    show(std::ptr::null());
    let _statement = Back(|| show(statement));
    for_caller(None, || as_role(role, || setting::with_none_kept(&[(c"row_security", c"on")], work)))
}

/// Runs a function at the end of its scope, also if an error ends the scope.
struct Back<F: FnMut()>(F);

impl<F: FnMut()> Drop for Back<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// The oid of the role of this name.
pub fn find(name: &str) -> Option<pg_sys::Oid> {
    let name = CString::new(name).ok()?;
    // SAFETY: a look-up by name, which returns InvalidOid for a missing role.
    let role = unsafe { pg_sys::get_role_oid(name.as_ptr(), true) };
    (role != pg_sys::InvalidOid).then_some(role)
}

/// The roles as which the session acts: the role that logged in, the role of SET ROLE, and the role whose
/// rights apply now. While kb does a step as a role of its own, the last one is the caller of kb. While kb
/// does a step for another role, that role counts, too, whatever functions are called in the step.
pub fn acting() -> [pg_sys::Oid; 4] {
    let caller = caller();
    // SAFETY: these functions read variables of this process.
    unsafe { [pg_sys::GetSessionUserId(), pg_sys::GetOuterUserId(), caller, NAMED.get().unwrap_or(caller)] }
}

/// The names and oids of the roles as which the session acts, each once.
pub fn acting_roles() -> (Vec<String>, Vec<i64>) {
    let roles: BTreeSet<u32> = acting().into_iter().map(pg_sys::Oid::to_u32).collect();
    roles.into_iter().filter_map(|role| Some((name_of(role.into())?, i64::from(role)))).unzip()
}

/// The name of the role that calls kb.
pub fn caller_name() -> String {
    name_of(caller()).unwrap_or_default()
}

/// The name of a role, or None if the role does not exist.
fn name_of(role: pg_sys::Oid) -> Option<String> {
    // SAFETY: a look-up by oid; the name is copied.
    unsafe {
        let name = pg_sys::GetUserNameFromId(role, true);
        (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned())
    }
}

/// The role of this name and the role of this oid. These may differ: a role can have been renamed, and in a
/// restored database it has another oid. A role that no longer exists is left out.
pub fn known_by(name: &str, oid: i64) -> Vec<pg_sys::Oid> {
    let by_oid =
        Some(pg_sys::Oid::from(u32::try_from(oid).unwrap_or(0))).filter(|oid| name_of(*oid).is_some());
    find(name).into_iter().chain(by_oid).collect()
}

/// Whether the caller has the rights of a role.
pub fn caller_is(name: &str) -> bool {
    is_member(caller(), name)
}

/// Whether a role, given by its name, has the rights of another.
pub fn is(role: &str, name: &str) -> bool {
    find(role).is_some_and(|role| is_member(role, name))
}

/// Whether the caller may SET ROLE to this role.
pub fn caller_may_become(name: &str) -> bool {
    // SAFETY: look-ups by oid.
    find(name).is_some_and(|role| unsafe { may_set_role(caller(), role) })
}

fn is_member(role: pg_sys::Oid, name: &str) -> bool {
    // SAFETY: look-ups by oid.
    find(name).is_some_and(|group| unsafe { pg_sys::has_privs_of_role(role, group) })
}

/// Whether a role, given by its name, bypasses row-level security. Returns None if the role does not exist.
pub fn bypasses(name: &str) -> Option<bool> {
    // SAFETY: a look-up by oid.
    find(name).map(|role| unsafe { pg_sys::has_bypassrls_privilege(role) })
}

fn caller() -> pg_sys::Oid {
    // SAFETY: reads a variable of this process.
    CALLER.get().unwrap_or_else(|| unsafe { pg_sys::GetUserId() })
}

/// Runs `work` on behalf of this caller, or of the role that runs it if this is None.
fn for_caller<T>(caller: Option<pg_sys::Oid>, work: impl FnOnce() -> T) -> T {
    let before = CALLER.replace(caller);
    let _back = Back(|| CALLER.set(before));
    work()
}

/// Whether the caller bypasses row-level security, as a superuser or with BYPASSRLS.
pub fn bypasses_policies() -> bool {
    // SAFETY: look-ups by oid.
    unsafe { pg_sys::has_bypassrls_privilege(pg_sys::GetUserId()) }
}

fn as_role<T>(role: pg_sys::Oid, work: impl FnOnce() -> Result<T>) -> Result<T> {
    // The user id is restored on return. After an ERROR, the abort of the transaction restores it.
    let before = become_role(role);
    let result = work();
    return_to(before);
    result
}

/// The role that ran before, and its security context.
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
    // SAFETY: the values are those that `become_role` has read.
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
