//! kb.apply and kb.export.

use crate::pg::function_arguments::required;
use crate::pg::report::{hidden, reported};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(volatile, parallel_unsafe)]
fn apply(
    yaml: Option<&str>,
    dry_run: default!(Option<bool>, "false"),
    prune: default!(Option<bool>, "false"),
    if_match: default!(Option<&str>, "NULL"),
) -> Result<
    TableIterator<
        'static,
        (name!(kind, String), name!(id, String), name!(action, String), name!(difference, Option<String>)),
    >,
    ErrorReport,
> {
    reported(|| {
        let (dry_run, prune) = (required("dry_run", dry_run)?, required("prune", prune)?);
        // A file may contain a key, although it should not.
        let applied = hidden(|| super::apply::apply(required("yaml", yaml)?, dry_run, prune, if_match))?;
        Ok(TableIterator::new(applied.into_iter().map(|applied| {
            let difference = Some(applied.difference).filter(|difference| !difference.is_empty());
            (applied.identity.kind.name().into(), applied.identity.text(), applied.action.into(), difference)
        })))
    })
}

#[pg_extern(stable, parallel_restricted)]
fn export(
    kind: default!(Option<&str>, "'all'"),
    id: default!(Option<&str>, "'all'"),
) -> Result<String, ErrorReport> {
    reported(|| super::export::export(required("kind", kind)?, required("id", id)?))
}
