//! kb.set_secret and kb.drop_secret.

use crate::pg::function_arguments::required;
use crate::pg::report;
use crate::pg::report::reported;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(volatile, parallel_unsafe)]
fn set_secret(name: Option<&str>, value: Option<&str>) -> Result<(), ErrorReport> {
    reported(|| {
        // The statement contains a key, so its errors do not show it.
        report::hidden(|| {
            crate::models::set_secret::set_secret(required("name", name)?, required("value", value)?)
        })
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn drop_secret(name: Option<&str>) -> Result<(), ErrorReport> {
    reported(|| crate::models::drop_secret::drop_secret(required("name", name)?))
}
