//! kb.health(): what is wrong and what to do about it.

use crate::health::health::Finding;
use crate::pg::report::reported;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(volatile, parallel_restricted)]
fn health() -> Result<
    TableIterator<
        'static,
        (name!(component, String), name!(status, String), name!(detail, String), name!(hint, Option<String>)),
    >,
    ErrorReport,
> {
    reported(|| {
        let findings = crate::health::health::health()?;
        Ok(TableIterator::new(findings.into_iter().map(|Finding { component, status, detail, hint }| {
            (component.to_string(), status.name().to_string(), detail, hint)
        })))
    })
}
