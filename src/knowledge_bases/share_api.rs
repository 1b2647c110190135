//! SQL functions that share knowledge bases with other tenants.

use crate::pg::function_arguments::required;
use crate::pg::report::reported;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(volatile, parallel_unsafe)]
fn share(kb_id: Option<&str>, tenant: Option<&str>) -> Result<bool, ErrorReport> {
    reported(|| crate::knowledge_bases::share::share(required("kb_id", kb_id)?, required("tenant", tenant)?))
}

#[pg_extern(volatile, parallel_unsafe)]
fn unshare(kb_id: Option<&str>, tenant: Option<&str>) -> Result<bool, ErrorReport> {
    reported(|| {
        crate::knowledge_bases::share::unshare(required("kb_id", kb_id)?, required("tenant", tenant)?)
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn refuse_share(kb_id: Option<&str>, owner: Option<&str>) -> Result<bool, ErrorReport> {
    reported(|| {
        crate::knowledge_bases::share::refuse_share(required("kb_id", kb_id)?, required("owner", owner)?)
    })
}
