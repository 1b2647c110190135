//! SQL functions over vector databases.

use crate::catalog::vector_dbs as cases;
use pgrx::JsonB;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

// Written out because an argument called type cannot be spelt in Rust.
#[pg_extern(sql = r#"
CREATE FUNCTION kb."create_vector_db"(
    "id" text,
    "type" text DEFAULT 'pgvector',
    "dimension" integer DEFAULT 384,
    "metric" text DEFAULT 'cosine',
    "config" jsonb DEFAULT '{}'
) RETURNS void
STRICT VOLATILE PARALLEL UNSAFE
LANGUAGE c
AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
"#)]
fn create_vector_db(
    id: &str,
    kind: &str,
    dimension: i32,
    metric: &str,
    config: JsonB,
) -> Result<(), ErrorReport> {
    Ok(cases::create(id, kind, dimension, metric, &config.0)?)
}

#[pg_extern(volatile, parallel_unsafe)]
fn drop_vector_db(id: &str) -> Result<(), ErrorReport> {
    Ok(cases::drop(id)?)
}
