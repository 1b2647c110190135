//! SQL functions over vector databases.

use crate::pg::function_arguments::{elements, required, value};
use crate::pg::json::Jsonb;
use crate::pg::report::reported;
use crate::pg::uuid::from_pg;
use crate::resources::{self, Resource};
use crate::vectors::{create_vector_db, sql};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use pgrx::{JsonB, Uuid};
use serde_json::json;

// Written out, because an argument called type cannot be spelt in Rust.
#[pg_extern(sql = r#"
CREATE FUNCTION kb."create_vector_db"(
    "id" text,
    "type" text DEFAULT 'pgvector',
    "dimension" integer DEFAULT 384,
    "metric" text DEFAULT 'cosine',
    "config" jsonb DEFAULT '{}'
) RETURNS void
VOLATILE PARALLEL UNSAFE
LANGUAGE c
AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
"#)]
fn create_vector_db(
    id: Option<&str>,
    kind: Option<&str>,
    dimension: Option<i32>,
    metric: Option<&str>,
    config: Option<Jsonb>,
) -> Result<(), ErrorReport> {
    reported(|| {
        let (id, kind) = (required("id", id)?, required("type", kind)?);
        let (dimension, metric) = (required("dimension", dimension)?, required("metric", metric)?);
        let config = required("config", value("config", config)?)?;
        create_vector_db::create_vector_db(id, kind, dimension, metric, &config)
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn drop_vector_db(id: Option<&str>, if_match: default!(Option<&str>, "NULL")) -> Result<(), ErrorReport> {
    reported(|| {
        let id = required("id", id)?;
        resources::check(Resource::VectorDb, id, if_match)?;
        create_vector_db::drop_vector_db(id)
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn _delete_vectors(build_no: Option<i64>, chunk_ids: Option<Vec<Option<Uuid>>>) -> Result<(), ErrorReport> {
    reported(|| {
        let ids = elements("chunk_ids", required("chunk_ids", chunk_ids)?)?;
        let ids: Vec<uuid::Uuid> = ids.into_iter().map(from_pg).collect();
        sql::delete_of_chunks(required("build_no", build_no)?, &ids)
    })
}

#[pg_extern(name = "_delete_vectors", volatile, parallel_unsafe)]
fn _delete_vectors_of_build(build_no: Option<i64>, relation: Option<&str>) -> Result<(), ErrorReport> {
    reported(|| {
        let (build_no, relation) = (required("build_no", build_no)?, required("relation", relation)?);
        sql::delete_of_build(build_no, relation)
    })
}

/// The index that is being built on the build's table: what it is, PostgreSQL's name of the phase, and the
/// part that is done, if known. NULL: no index is being built, or the caller may not know.
#[pg_extern(stable, parallel_restricted)]
fn _index_progress(build_no: Option<i64>) -> Result<Option<JsonB>, ErrorReport> {
    reported(|| {
        let progress = sql::index_progress(required("build_no", build_no)?)?;
        Ok(progress.map(|progress| {
            let what = if progress.is_merge { "merge" } else { "segment" };
            JsonB(json!({"what": what, "phase": progress.phase, "done": progress.done}))
        }))
    })
}

/// The number of segments of the build's table that have an index, and the number of the vectors that
/// kb._vector_count counts that no index has.
#[pg_extern(stable, parallel_restricted)]
fn _index_state(build_no: Option<i64>) -> Result<Vec<i64>, ErrorReport> {
    reported(|| {
        let (segments, unindexed) = sql::index_state(required("build_no", build_no)?)?;
        Ok(vec![segments, unindexed])
    })
}

/// The number of vectors of a build that the caller's policies show.
#[pg_extern(stable, parallel_restricted)]
fn _vector_count(build_no: Option<i64>) -> Result<i64, ErrorReport> {
    reported(|| sql::count(required("build_no", build_no)?))
}
