//! SQL functions over vector databases.

use crate::catalog::vector_dbs as cases;
use pgrx::JsonB;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(volatile, parallel_unsafe)]
fn create_vector_db(
    id: &str,
    r#type: default!(&str, "'pgvector'"),
    dimension: default!(i32, "384"),
    metric: default!(&str, "'cosine'"),
    config: default!(JsonB, "'{}'"),
) -> Result<(), ErrorReport> {
    Ok(cases::create(id, r#type, dimension, metric, &config.0)?)
}

#[pg_extern(volatile, parallel_unsafe)]
fn drop_vector_db(id: &str) -> Result<(), ErrorReport> {
    Ok(cases::drop(id)?)
}
