//! kb.set_secret and kb.drop_secret.

use super::required;
use crate::catalog::secrets;
use crate::pg::report;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(volatile, parallel_unsafe)]
fn set_secret(name: Option<&str>, value: Option<&str>) -> Result<(), ErrorReport> {
    // Whatever is wrong with the call, the statement holds a key.
    report::hidden(|| Ok(secrets::set(required("name", name)?, required("value", value)?)?))
}

#[pg_extern(volatile, parallel_unsafe)]
fn drop_secret(name: Option<&str>) -> Result<(), ErrorReport> {
    Ok(secrets::drop(required("name", name)?)?)
}
