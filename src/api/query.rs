//! kb.query and kb.query_vector.

use super::{json, required, value};
use crate::pg::json::Jsonb;
use crate::pg::uuid::to_pg;
use crate::pg::vector::Vector;
use crate::retrieve::Hit;
use crate::retrieve::run::{self, Request};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use pgrx::{JsonB, Uuid};

#[allow(clippy::too_many_arguments)]
#[pg_extern(stable, parallel_restricted)]
fn query(
    kb_id: Option<&str>,
    query: Option<&str>,
    top_k: default!(Option<i32>, "NULL"),
    min_score: default!(Option<f64>, "NULL"),
    filter: default!(Option<Jsonb>, "NULL"),
    max_tokens: default!(Option<i32>, "NULL"),
    mode: default!(Option<&str>, "'dense'"),
    options: default!(Option<Jsonb>, "NULL"),
) -> Result<
    TableIterator<
        'static,
        (
            name!(rank, i32),
            name!(chunk_id, Uuid),
            name!(kb_id, String),
            name!(external_id, String),
            name!(title, Option<String>),
            name!(content, String),
            name!(score, Option<f64>),
            name!(rank_score, Option<f64>),
            name!(token_count, i32),
            name!(metadata, Jsonb),
            name!(locator, JsonB),
            name!(stale, bool),
        ),
    >,
    ErrorReport,
> {
    let kb_id = required("kb_id", kb_id)?;
    let query = required("query", query)?;
    let mode = required("mode", mode)?;
    let (filter, options) = (json("filter", filter)?, value("options", options)?);
    let request = Request::new(kb_id, top_k, min_score, filter, max_tokens, mode, options)?;
    let hits = run::by_text(&request, query)?;
    Ok(TableIterator::new(rows(kb_id, hits)))
}

#[allow(clippy::too_many_arguments)]
#[pg_extern(stable, parallel_safe)]
fn query_vector(
    kb_id: Option<&str>,
    vector: Option<Vector>,
    top_k: default!(Option<i32>, "NULL"),
    min_score: default!(Option<f64>, "NULL"),
    filter: default!(Option<Jsonb>, "NULL"),
    max_tokens: default!(Option<i32>, "NULL"),
    mode: default!(Option<&str>, "'dense'"),
    options: default!(Option<Jsonb>, "NULL"),
) -> Result<
    TableIterator<
        'static,
        (
            name!(rank, i32),
            name!(chunk_id, Uuid),
            name!(kb_id, String),
            name!(external_id, String),
            name!(title, Option<String>),
            name!(content, String),
            name!(score, Option<f64>),
            name!(rank_score, Option<f64>),
            name!(token_count, i32),
            name!(metadata, Jsonb),
            name!(locator, JsonB),
            name!(stale, bool),
        ),
    >,
    ErrorReport,
> {
    let kb_id = required("kb_id", kb_id)?;
    let vector = required("vector", vector)?;
    let mode = required("mode", mode)?;
    let (filter, options) = (json("filter", filter)?, value("options", options)?);
    let request = Request::new(kb_id, top_k, min_score, filter, max_tokens, mode, options)?;
    let hits = run::by_vector(&request, &vector.0)?;
    Ok(TableIterator::new(rows(kb_id, hits)))
}

/// A row of kb.query's result, as the function signatures spell it out (pgrx reads no type aliases).
type Row =
    (i32, Uuid, String, String, Option<String>, String, Option<f64>, Option<f64>, i32, Jsonb, JsonB, bool);

fn rows(kb_id: &str, hits: Vec<Hit>) -> impl Iterator<Item = Row> + use<> {
    let kb_id = kb_id.to_string();
    hits.into_iter().enumerate().map(move |(i, hit)| {
        (
            i as i32 + 1,
            to_pg(hit.chunk_id),
            kb_id.clone(),
            hit.external_id,
            hit.title,
            hit.content,
            hit.score,
            hit.rank_score.or(hit.score),
            hit.token_count,
            Jsonb(hit.metadata),
            JsonB(hit.locator),
            hit.stale,
        )
    })
}
