//! SQL functions over embedders.

use crate::models::embedder_settings::WantedEmbedder;
use crate::pg::function_arguments::{elements, required, value};
use crate::pg::json::Jsonb;
use crate::pg::report;
use crate::pg::report::reported;
use crate::pg::vector::Vector;

use kb_types::error::Error;
use kb_types::{Embedder, EmbedderConfig, Kind};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(volatile, parallel_unsafe)]
fn create_embedder(
    id: Option<&str>,
    provider: Option<&str>,
    model: default!(Option<&str>, "NULL"),
    dimension: default!(Option<i32>, "NULL"),
    base_url: default!(Option<&str>, "NULL"),
    secret: default!(Option<&str>, "NULL"),
    config: default!(Option<Jsonb>, "NULL"),
) -> Result<(), ErrorReport> {
    reported(|| {
        // The call may contain a key, so its errors do not show the statement.
        report::hidden(|| {
            let id = required("id", id)?;
            let provider = required("provider", provider)?;
            crate::models::create_embedder::create_embedder(
                id,
                &wanted(Some(provider), model, dimension, base_url, secret, config)?,
            )
        })
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn alter_embedder(
    id: Option<&str>,
    model: default!(Option<&str>, "NULL"),
    dimension: default!(Option<i32>, "NULL"),
    base_url: default!(Option<&str>, "NULL"),
    secret: default!(Option<&str>, "NULL"),
    config: default!(Option<Jsonb>, "NULL"),
) -> Result<(), ErrorReport> {
    reported(|| {
        report::hidden(|| {
            let id = required("id", id)?;
            crate::models::alter_embedder::alter_embedder(
                id,
                wanted(None, model, dimension, base_url, secret, config)?,
            )
        })
    })
}

fn wanted(
    provider: Option<&str>,
    model: Option<&str>,
    dimension: Option<i32>,
    base_url: Option<&str>,
    secret: Option<&str>,
    config: Option<Jsonb>,
) -> Result<WantedEmbedder, Error> {
    Ok(WantedEmbedder {
        provider: provider.map(str::to_string),
        model: model.map(str::to_string),
        dimension,
        base_url: base_url.map(str::to_string),
        secret: secret.map(str::to_string),
        config: value("config", config)?,
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn drop_embedder(id: Option<&str>) -> Result<(), ErrorReport> {
    reported(|| crate::models::drop_embedder::drop_embedder(required("id", id)?))
}

#[pg_extern(volatile, parallel_restricted)]
fn check_embedder(
    id: Option<&str>,
) -> Result<
    TableIterator<
        'static,
        (
            name!(ok, bool),
            name!(dimension, Option<i32>),
            name!(latency_ms, f64),
            name!(problem, Option<String>),
        ),
    >,
    ErrorReport,
> {
    reported(|| {
        let check = crate::models::check_embedder::check_embedder(required("id", id)?)?;
        let dimension = check.dimension.map(|d| d as i32);
        Ok(TableIterator::once((check.problem.is_none(), dimension, check.latency_ms, check.problem)))
    })
}

#[pg_extern(stable, parallel_restricted)]
fn embed(
    embedder: Option<&str>,
    texts: Option<Vec<Option<String>>>,
    kind: default!(Option<&str>, "'document'"),
) -> Result<SetOfIterator<'static, Vector>, ErrorReport> {
    reported(|| {
        let embedder = required("embedder", embedder)?;
        let texts = elements("texts", required("texts", texts)?)?;
        let kind = match required("kind", kind)? {
            "document" => Kind::Document,
            "query" => Kind::Query,
            other => {
                return Err(Error::Argument {
                    argument: "kind",
                    problem: format!("\"{other}\" is not one of document, query"),
                })?;
            }
        };
        let vectors = crate::models::embed::embed(embedder, &texts, kind)?;
        Ok(SetOfIterator::new(vectors.into_iter().map(Vector)))
    })
}

#[pg_extern(stable, parallel_restricted)]
fn count_tokens(text: Option<&str>, embedder: default!(Option<&str>, "NULL")) -> Result<i32, ErrorReport> {
    reported(|| {
        let text = required("text", text)?;
        Ok(crate::models::count_tokens::count_tokens(text, embedder)? as i32)
    })
}

/// For the rows that the extension's own script inserts.
#[pg_extern(immutable, parallel_safe)]
fn _fingerprint(provider: &str, model: &str, dimension: i32, config: Jsonb) -> Result<i64, ErrorReport> {
    reported(|| {
        let config = EmbedderConfig::parse(&required("config", value("config", Some(config))?)?)
            .map_err(|problems| Error::configuration("config", problems))?;
        let embedder = Embedder {
            id: String::new(),
            provider: provider.into(),
            model: model.into(),
            dimension: dimension.max(0) as usize,
            base_url: None,
            config,
        };
        Ok(embedder.fingerprint())
    })
}
