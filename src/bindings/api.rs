//! SQL functions over bindings.

use crate::pg::function_arguments::{elements, json, required};
use crate::pg::json::Jsonb;
use crate::pg::report::reported;
use crate::pg::uuid::to_pg;
use kb_search::bindings::Binding;
use kb_types::context_format::ContextFormat;
use kb_types::error::Error;
use kb_types::named::Named;
use pgrx::Uuid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[allow(clippy::too_many_arguments)]
#[pg_extern(volatile, parallel_unsafe)]
fn bind(
    scope: Option<&str>,
    id_ref: Option<&str>,
    top_k: default!(Option<i32>, "NULL"),
    min_score: default!(Option<f64>, "NULL"),
    max_tokens: default!(Option<i32>, "NULL"),
    fallback: default!(Option<&str>, "NULL"),
    inject_as: default!(Option<&str>, "NULL"),
    filter: default!(Option<Jsonb>, "NULL"),
    replace: default!(Option<bool>, "false"),
) -> Result<(), ErrorReport> {
    reported(|| {
        let binding = Binding {
            id_ref: required("id_ref", id_ref)?.to_string(),
            top_k,
            min_score,
            max_tokens,
            fallback: fallback.map(str::to_string),
            inject_as: inject_as.map(str::to_string),
            filter: json("filter", filter)?,
        };
        crate::bindings::bind::bind(required("scope", scope)?, &binding, required("replace", replace)?)
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn unbind(scope: Option<&str>, id_ref: Option<&str>) -> Result<bool, ErrorReport> {
    reported(|| crate::bindings::bind::unbind(required("scope", scope)?, required("id_ref", id_ref)?))
}

#[pg_extern(stable, parallel_restricted)]
fn resolve_bindings(
    scopes: Option<Vec<Option<String>>>,
) -> Result<
    TableIterator<
        'static,
        (
            name!(id_ref, String),
            name!(kb_id, Option<String>),
            name!(scopes, Vec<String>),
            name!(top_k, Option<i32>),
            name!(min_score, Option<f64>),
            name!(max_tokens, Option<i32>),
            name!(fallback, Option<String>),
            name!(inject_as, Option<String>),
            name!(filter, Option<Jsonb>),
        ),
    >,
    ErrorReport,
> {
    reported(|| {
        let scopes = elements("scopes", required("scopes", scopes)?)?;
        let resolved = crate::bindings::resolve_bindings::resolve_bindings(&scopes)?;
        Ok(TableIterator::new(resolved.into_iter().map(|bound| {
            let Binding { id_ref, top_k, min_score, max_tokens, fallback, inject_as, filter } = bound.binding;
            let filter = filter.map(Jsonb);
            (id_ref, bound.kb_id, bound.scopes, top_k, min_score, max_tokens, fallback, inject_as, filter)
        })))
    })
}

#[pg_extern(stable, parallel_restricted)]
fn retrieve_context(
    scopes: Option<Vec<Option<String>>>,
    query: Option<&str>,
) -> Result<
    TableIterator<
        'static,
        (
            name!(binding_id, String),
            name!(content, Option<String>),
            name!(score, Option<f64>),
            name!(token_estimate, i32),
            name!(metadata, Jsonb),
        ),
    >,
    ErrorReport,
> {
    reported(|| {
        let scopes = elements("scopes", required("scopes", scopes)?)?;
        let rows = crate::bindings::retrieve_context::retrieve_context(&scopes, required("query", query)?)?;
        Ok(TableIterator::new(rows.into_iter().map(|row| {
            let tokens = i32::try_from(row.token_estimate).unwrap_or(i32::MAX);
            (row.binding_id, row.content, row.score, tokens, Jsonb(row.metadata))
        })))
    })
}

#[pg_extern(stable, parallel_restricted)]
fn prompt_context(
    scopes: Option<Vec<Option<String>>>,
    query: Option<&str>,
    format: default!(Option<&str>, "'markdown'"),
    max_tokens: default!(Option<i32>, "NULL"),
) -> Result<
    TableIterator<
        'static,
        (
            name!(inject_as, String),
            name!(context, String),
            name!(chunk_ids, Vec<Uuid>),
            name!(tokens, i32),
            name!(fallback, bool),
            name!(truncated, bool),
        ),
    >,
    ErrorReport,
> {
    reported(|| {
        let scopes = elements("scopes", required("scopes", scopes)?)?;
        let format = ContextFormat::one_of(required("format", format)?)
            .map_err(|problem| Error::Argument { argument: "format", problem })?;
        let question = required("query", query)?;
        let texts = crate::bindings::prompt_context::prompt_context(&scopes, question, format, max_tokens)?;
        Ok(TableIterator::new(texts.into_iter().map(|text| {
            let chunk_ids = text.chunk_ids.into_iter().map(to_pg).collect();
            let tokens = i32::try_from(text.tokens).unwrap_or(i32::MAX);
            (text.inject_as, text.text, chunk_ids, tokens, text.is_fallback, text.is_truncated)
        })))
    })
}
