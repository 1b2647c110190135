//! SQL functions over sources.

use crate::pg::function_arguments::{required, value};
use crate::pg::json::Jsonb;
use crate::pg::report::{hidden, reported};
use crate::resources::{self, Resource};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

// Written out, because an argument called type cannot be spelt in Rust.
#[pg_extern(sql = r#"
CREATE FUNCTION kb."create_source"(
    "kb_id" text,
    "name" text,
    "type" text,
    "config" jsonb DEFAULT '{}'
) RETURNS bigint
VOLATILE PARALLEL UNSAFE
LANGUAGE c
AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
"#)]
fn create_source(
    kb_id: Option<&str>,
    name: Option<&str>,
    kind: Option<&str>,
    config: Option<Jsonb>,
) -> Result<i64, ErrorReport> {
    let create = || {
        let (kb_id, name) = (required("kb_id", kb_id)?, required("name", name)?);
        let (kind, config) = (required("type", kind)?, value("config", config)?.unwrap_or_default());
        crate::sources::create_source::create_source(kb_id, name, kind, &config)
    };
    // The configuration may contain a key in the place of a reference to it.
    reported(|| hidden(create))
}

#[pg_extern(volatile, parallel_unsafe)]
fn import_files(
    kb_id: Option<&str>,
    path: Option<&str>,
) -> Result<
    TableIterator<'static, (name!(added, i64), name!(updated, i64), name!(skipped, i64), name!(failed, i64))>,
    ErrorReport,
> {
    reported(|| {
        let (kb_id, path) = (required("kb_id", kb_id)?, required("path", path)?);
        let counts = crate::sources::import_files::import_files(kb_id, path)?;
        Ok(TableIterator::once((counts.added, counts.updated, counts.skipped, counts.failed)))
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn alter_source(
    kb_id: Option<&str>,
    name: Option<&str>,
    config: Option<Jsonb>,
    if_match: default!(Option<&str>, "NULL"),
) -> Result<(), ErrorReport> {
    let alter = || {
        let (kb_id, name) = (required("kb_id", kb_id)?, required("name", name)?);
        resources::check(Resource::Source(kb_id), name, if_match)?;
        let config = required("config", value("config", config)?)?;
        crate::sources::create_source::alter_source(kb_id, name, &config)
    };
    reported(|| hidden(alter))
}

#[pg_extern(volatile, parallel_unsafe)]
fn drop_source(
    kb_id: Option<&str>,
    name: Option<&str>,
    delete_documents: default!(Option<bool>, "true"),
    if_match: default!(Option<&str>, "NULL"),
) -> Result<i64, ErrorReport> {
    reported(|| {
        let (kb_id, name) = (required("kb_id", kb_id)?, required("name", name)?);
        resources::check(Resource::Source(kb_id), name, if_match)?;
        let delete_documents = required("delete_documents", delete_documents)?;
        crate::sources::drop_source::drop_source(kb_id, name, delete_documents)
    })
}
