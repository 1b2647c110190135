//! SQL functions over attached tables.

use crate::pg::ddl_event::DdlEvent;
use crate::pg::function_arguments::{elements, required, value};
use crate::pg::json::Jsonb;
use crate::pg::regclass::Regclass;
use crate::pg::report::reported;
use crate::pg::trigger::Firing;
use crate::tables::attach_table::WantedTable;
use pgrx::datum::TimestampWithTimeZone;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[allow(clippy::too_many_arguments)]
#[pg_extern(volatile, parallel_unsafe)]
fn attach_table(
    kb_id: Option<&str>,
    relation: Option<Regclass>,
    content: Option<&str>,
    published_when: default!(Option<&str>, "NULL"),
    metadata: default!(Option<Vec<Option<String>>>, "'{}'"),
    tenant: default!(Option<&str>, "NULL"),
    title: default!(Option<&str>, "NULL"),
    uri: default!(Option<&str>, "NULL"),
    content_type: default!(Option<&str>, "NULL"),
    replicated: default!(Option<bool>, "false"),
    json_fields: default!(Option<Jsonb>, "NULL"),
    adopt: default!(Option<&str>, "NULL"),
) -> Result<i64, ErrorReport> {
    reported(|| {
        let (kb_id, Regclass(relation)) = (required("kb_id", kb_id)?, required("relation", relation)?);
        let text = |given: Option<&str>| given.map(str::to_string);
        let wanted = WantedTable {
            content: required("content", content)?.to_string(),
            json_fields: value("json_fields", json_fields)?.unwrap_or_default(),
            published_when: text(published_when),
            metadata: elements("metadata", required("metadata", metadata)?)?,
            tenant: text(tenant),
            title: text(title),
            uri: text(uri),
            content_type: text(content_type),
            replicated: required("replicated", replicated)?,
            adopt: text(adopt),
        };
        crate::tables::attach_table::attach_table(kb_id, relation, wanted)
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn detach_table(
    kb_id: Option<&str>,
    relation: Option<Regclass>,
    keep: default!(Option<bool>, "false"),
) -> Result<i64, ErrorReport> {
    reported(|| {
        let (kb_id, Regclass(relation)) = (required("kb_id", kb_id)?, required("relation", relation)?);
        crate::tables::detach_table::detach_table(kb_id, relation, required("keep", keep)?)
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn reconcile(
    kb_id: Option<&str>,
) -> Result<
    TableIterator<
        'static,
        (
            name!(relation, String),
            name!(rows, i64),
            name!(missing, i64),
            name!(changed, i64),
            name!(orphaned, i64),
        ),
    >,
    ErrorReport,
> {
    reported(|| {
        let found = crate::tables::reconcile::reconcile(required("kb_id", kb_id)?)?;
        Ok(TableIterator::new(
            found
                .into_iter()
                .map(|drift| (drift.table, drift.rows, drift.missing, drift.changed, drift.orphaned)),
        ))
    })
}

#[pg_extern(stable, parallel_restricted)]
fn row_status(
    relation: Option<Regclass>,
    key: Option<&str>,
) -> Result<
    TableIterator<
        'static,
        (name!(kb_id, String), name!(status, String), name!(since, Option<TimestampWithTimeZone>)),
    >,
    ErrorReport,
> {
    reported(|| {
        let (Regclass(relation), key) = (required("relation", relation)?, required("key", key)?);
        let found = crate::tables::row_status::row_status(relation, key)?;
        Ok(TableIterator::new(found.into_iter().map(|(kb_id, row)| (kb_id, row.status, row.since))))
    })
}

/// Called by event triggers.
#[pg_extern(
    sql = "CREATE FUNCTION kb._tables_altered() RETURNS event_trigger LANGUAGE c AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';"
)]
fn _tables_altered(call: pgrx::pg_sys::FunctionCallInfo) -> Result<(), ErrorReport> {
    reported(|| crate::tables::tables_altered::tables_altered(&DdlEvent::of(call)?))
}

/// Called by the triggers of attached tables.
#[pg_trigger]
fn _rows_changed<'a>(
    trigger: &'a PgTrigger<'a>,
) -> Result<Option<PgHeapTuple<'a, AllocatedByRust>>, ErrorReport> {
    reported(|| {
        crate::tables::rows_changed::rows_changed(&Firing::of(trigger)?)?;
        Ok(None)
    })
}
