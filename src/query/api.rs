//! kb.query, kb.query_vector, kb.query_rows, kb.relevant and kb.explain.

use crate::pg::function_arguments::{elements, json, required, value};
use crate::pg::json::Jsonb;
use crate::pg::report::reported;
use crate::pg::uuid::{from_pg, to_pg};
use crate::pg::vector::Vector;
use crate::query::explain::Named;
use kb_search::Request;
use kb_types::error::Error;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use pgrx::{JsonB, Uuid};

/// Declares a function that returns hits. The columns of an answer and their values are defined here and
/// nowhere else; the body returns the hits. This is a macro, because pgrx reads the columns from the
/// signature and does not look through a type alias.
macro_rules! answers {
    ($(#[$($attribute:tt)*])* fn $name:ident($($arguments:tt)*) { $($body:tt)* }) => {
        $(#[$($attribute)*])*
        fn $name($($arguments)*) -> Result<
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
    reported(|| {
            let hits = { $($body)* };
            Ok(TableIterator::new((1..).zip(hits).map(|(rank, hit)| {
                (
                    rank,
                    to_pg(hit.chunk_id),
                    hit.kb_id,
                    hit.row.external_id,
                    hit.row.title,
                    hit.row.content,
                    hit.score,
                    hit.rank_score,
                    hit.row.token_count,
                    Jsonb(hit.row.metadata),
                    JsonB(hit.row.locator),
                    hit.row.stale,
                )
            })))
        })
}
    };
}

answers! {
    #[allow(clippy::too_many_arguments)]
    #[pg_extern(stable, parallel_restricted)]
    fn query(
        kb_id: Option<&str>,
        query: Option<&str>,
        top_k: default!(Option<i32>, "NULL"),
        min_score: default!(Option<f64>, "NULL"),
        filter: default!(Option<Jsonb>, "NULL"),
        max_tokens: default!(Option<i32>, "NULL"),
        mode: default!(Option<&str>, "NULL"),
        options: default!(Option<Jsonb>, "NULL"),
    ) {
        let request = request(kb_id, top_k, min_score, filter, max_tokens, mode, options)?;
        crate::query::query::query(&request, required("query", query)?)?
    }
}

answers! {
    #[allow(clippy::too_many_arguments)]
    #[pg_extern(name = "query", stable, parallel_restricted)]
    fn query_several(
        kb_ids: Option<Vec<Option<String>>>,
        query: Option<&str>,
        top_k: default!(Option<i32>, "NULL"),
        min_score: default!(Option<f64>, "NULL"),
        filter: default!(Option<Jsonb>, "NULL"),
        max_tokens: default!(Option<i32>, "NULL"),
        mode: default!(Option<&str>, "NULL"),
        options: default!(Option<Jsonb>, "NULL"),
        weights: default!(Option<Vec<Option<f64>>>, "NULL"),
    ) {
        let kb_ids = elements("kb_ids", required("kb_ids", kb_ids)?)?;
        let weights = weights.map(|weights| elements("weights", weights)).transpose()?;
        let request = request(Some(""), top_k, min_score, filter, max_tokens, mode, options)?;
        crate::query::query_several::query_several(&kb_ids, &request, required("query", query)?, weights.as_deref())?
    }
}

answers! {
    #[allow(clippy::too_many_arguments)]
    #[pg_extern(stable, parallel_safe)]
    fn query_vector(
        kb_id: Option<&str>,
        vector: Option<Vector>,
        top_k: default!(Option<i32>, "NULL"),
        min_score: default!(Option<f64>, "NULL"),
        filter: default!(Option<Jsonb>, "NULL"),
        max_tokens: default!(Option<i32>, "NULL"),
        mode: default!(Option<&str>, "NULL"),
        options: default!(Option<Jsonb>, "NULL"),
    ) {
        let request = request(kb_id, top_k, min_score, filter, max_tokens, mode, options)?;
        crate::query::query::query_vector(&request, &required("vector", vector)?.0)?
    }
}

#[allow(clippy::too_many_arguments)]
#[pg_extern(stable, parallel_restricted)]
fn query_rows(
    kb_id: Option<&str>,
    query: Option<&str>,
    top_k: default!(Option<i32>, "NULL"),
    min_score: default!(Option<f64>, "NULL"),
    filter: default!(Option<Jsonb>, "NULL"),
    max_tokens: default!(Option<i32>, "NULL"),
    mode: default!(Option<&str>, "NULL"),
    options: default!(Option<Jsonb>, "NULL"),
) -> Result<
    TableIterator<
        'static,
        (
            name!(external_id, String),
            name!(key, Option<Jsonb>),
            name!(row, Option<Jsonb>),
            name!(score, Option<f64>),
            name!(content, String),
        ),
    >,
    ErrorReport,
> {
    reported(|| {
        let request = request(kb_id, top_k, min_score, filter, max_tokens, mode, options)?;
        let found = crate::query::query_rows::query_rows(&request, required("query", query)?)?;
        Ok(TableIterator::new(found.into_iter().map(|found| {
            let (key, row) = found.row.map(|(key, row)| (Jsonb(key), Jsonb(row))).unzip();
            (found.hit.row.external_id, key, row, found.hit.score, found.hit.row.content)
        })))
    })
}

#[pg_extern(stable, parallel_restricted)]
fn relevant(
    kb_id: Option<&str>,
    query: Option<&str>,
    limit: default!(Option<i32>, "NULL"),
) -> Result<Vec<String>, ErrorReport> {
    reported(|| {
        let kb_id = required("kb_id", kb_id)?;
        crate::query::relevant::relevant(kb_id, required("query", query)?, limit)
    })
}

#[allow(clippy::too_many_arguments)]
#[pg_extern(stable, parallel_restricted)]
fn explain(
    kb_id: Option<&str>,
    query: Option<&str>,
    top_k: default!(Option<i32>, "NULL"),
    min_score: default!(Option<f64>, "NULL"),
    filter: default!(Option<Jsonb>, "NULL"),
    max_tokens: default!(Option<i32>, "NULL"),
    mode: default!(Option<&str>, "NULL"),
    options: default!(Option<Jsonb>, "NULL"),
    external_id: default!(Option<&str>, "NULL"),
    chunk_id: default!(Option<Uuid>, "NULL"),
) -> Result<JsonB, ErrorReport> {
    reported(|| {
        let request = request(kb_id, top_k, min_score, filter, max_tokens, mode, options)?;
        let named = match (external_id, chunk_id) {
            (Some(_), Some(_)) => {
                let problem = "only one of external_id and chunk_id may be given".to_string();
                Err(Error::Argument { argument: "chunk_id", problem })?
            }
            (Some(external_id), None) => Some(Named::Document(external_id)),
            (None, Some(chunk_id)) => Some(Named::Chunk(from_pg(chunk_id))),
            (None, None) => None,
        };
        Ok(JsonB(crate::query::explain::explain(&request, required("query", query)?, named)?))
    })
}

/// The arguments that the functions share.
pub fn request(
    kb_id: Option<&str>,
    top_k: Option<i32>,
    min_score: Option<f64>,
    filter: Option<Jsonb>,
    max_tokens: Option<i32>,
    mode: Option<&str>,
    options: Option<Jsonb>,
) -> kb_types::error::Result<Request> {
    let kb_id = required("kb_id", kb_id)?;
    let (filter, options) = (json("filter", filter)?, value("options", options)?);
    Request::new(kb_id, top_k, min_score, filter, max_tokens, mode, options)
}
