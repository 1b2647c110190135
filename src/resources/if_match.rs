//! The argument if_match: a change is made only if the resource is still what the caller has read.

use super::get::{etag, is_same};
use super::resource::Resource;
use super::sql;
use crate::pg::role::as_owner;
use crate::pg::txn;
use kb_types::error::{Error, Result};

/// Locks the resource until the transaction ends, and compares its etag. Says nothing of a resource that does
/// not exist, because the change itself will.
pub fn check(resource: Resource, id: &str, if_match: Option<&str>) -> Result<()> {
    let Some(given) = if_match else { return Ok(()) };
    let tenant = crate::tenants::bindings::current()?;
    as_owner(|| sql::lock(resource, id, &tenant))?;
    // What another transaction changed until it released the lock counts.
    let Some(found) = txn::with_latest_snapshot(|| sql::find(resource, id))? else { return Ok(()) };
    let etag = etag(&found.resource);
    match is_same(Some(given), &etag) {
        true => Ok(()),
        false => Err(Error::Stale { what: resource.object_kind(), id: id.into(), etag }),
    }
}
