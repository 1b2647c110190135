//! kb.set_secret and kb.drop_secret.

use super::required;
use crate::pg::report;
use crate::pg::report::reported;
use crate::use_cases;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(volatile, parallel_unsafe)]
fn set_secret(name: Option<&str>, value: Option<&str>) -> Result<(), ErrorReport> {
    reported(|| {
        // The statement contains a key, so its errors do not show it.
        report::hidden(|| use_cases::set_secret(required("name", name)?, required("value", value)?))
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn drop_secret(name: Option<&str>) -> Result<(), ErrorReport> {
    reported(|| use_cases::drop_secret(required("name", name)?))
}
