//! What embedding will cost, and whether a copy of a database may spend.

use super::required;
use crate::pg::report::reported;
use crate::use_cases;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(stable, parallel_restricted)]
fn estimate_ingest(
    kb_id: Option<&str>,
) -> Result<
    TableIterator<
        'static,
        (
            name!(documents, i64),
            name!(chunks, i64),
            name!(tokens, i64),
            name!(cost, Option<f64>),
            name!(seconds, f64),
        ),
    >,
    ErrorReport,
> {
    reported(|| {
        let found = use_cases::estimate_ingest(required("kb_id", kb_id)?)?;
        Ok(TableIterator::once((found.documents, found.chunks, found.tokens, found.cost, found.seconds)))
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn acknowledge_restore() -> Result<(), ErrorReport> {
    reported(use_cases::acknowledge_restore)
}
