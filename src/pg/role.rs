//! Who is asking, and doing a step as the extension's owner.

use super::spi;
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

fn extension_owner() -> Result<pg_sys::Oid> {
    spi::read_one("SELECT extowner FROM pg_catalog.pg_extension WHERE extname = 'kb'", &[], |row| {
        row.get::<pg_sys::Oid>(0)
    })?
    .ok_or_else(|| Error::Internal("extension kb is not installed in this database".into()))
}
