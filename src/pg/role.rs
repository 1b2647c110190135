//! Who is asking, and doing a step as the extension's owner.

use crate::error::{Error, Result};
use pgrx::pg_sys;

/// Runs `work` as the owner of the extension, in a security-restricted context with a pinned search
/// path: for the few writes that no role may do by itself (catalogs that steer the worker, DDL of
/// vector tables). `work` must check by itself what the caller may do.
pub fn as_owner<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    let owner = extension_owner()?;
    let (mut user, mut context) = (pg_sys::InvalidOid, 0);
    // SAFETY: user id and GUC level are restored on return; after an ERROR the transaction's abort
    // restores both.
    unsafe {
        pg_sys::GetUserIdAndSecContext(&mut user, &mut context);
        let level = pg_sys::NewGUCNestLevel();
        pg_sys::SetUserIdAndSecContext(owner, context | pg_sys::SECURITY_LOCAL_USERID_CHANGE as i32);
        super::setting::set(c"search_path", c"pg_catalog, pg_temp");
        let result = work();
        pg_sys::AtEOXact_GUC(false, level);
        pg_sys::SetUserIdAndSecContext(user, context);
        result
    }
}

/// Who owns the extension's tables.
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
