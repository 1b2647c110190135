//! kb.set_secret and kb.drop_secret.

use crate::catalog::secrets;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(volatile, strict, parallel_unsafe)]
fn set_secret(name: &str, value: &str) -> Result<(), ErrorReport> {
    Ok(secrets::set(name, value)?)
}

#[pg_extern(volatile, strict, parallel_unsafe)]
fn drop_secret(name: &str) -> Result<(), ErrorReport> {
    Ok(secrets::drop(name)?)
}
