//! What embedding will cost, and whether a copy of a database may spend.

use crate::pg::function_arguments::required;
use crate::pg::report::reported;

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
        let found = crate::knowledge_bases::estimate_ingest::estimate_ingest(required("kb_id", kb_id)?)?;
        Ok(TableIterator::once((found.documents, found.chunks, found.tokens, found.cost, found.seconds)))
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn acknowledge_restore() -> Result<(), ErrorReport> {
    reported(crate::models::acknowledge_restore::acknowledge_restore)
}
