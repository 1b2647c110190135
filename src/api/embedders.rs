//! SQL functions over embedders.

use super::{elements, required, value};
use crate::catalog::access::access;
use crate::catalog::embedders::{self as cases, Wanted};
use crate::error::Error;
use crate::gateway::client;
use crate::model::{Embedder, EmbedderConfig, Kind};
use crate::pg::json::Jsonb;
use crate::pg::report;
use crate::pg::vector::Vector;
use crate::settings;
use crate::store::embedders;
use crate::store::knowledge_bases::current_tenant;
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
    // Whatever is wrong with the call, a key may stand in it.
    report::hidden(|| {
        let id = required("id", id)?;
        let provider = required("provider", provider)?;
        Ok(cases::create(id, &wanted(Some(provider), model, dimension, base_url, secret, config)?)?)
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
    report::hidden(|| {
        let id = required("id", id)?;
        Ok(cases::alter(id, wanted(None, model, dimension, base_url, secret, config)?)?)
    })
}

fn wanted(
    provider: Option<&str>,
    model: Option<&str>,
    dimension: Option<i32>,
    base_url: Option<&str>,
    secret: Option<&str>,
    config: Option<Jsonb>,
) -> Result<Wanted, Error> {
    Ok(Wanted {
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
    Ok(cases::drop(required("id", id)?)?)
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
    let check = cases::check(required("id", id)?)?;
    let dimension = check.dimension.map(|d| d as i32);
    Ok(TableIterator::once((check.problem.is_none(), dimension, check.latency_ms, check.problem)))
}

#[pg_extern(stable, parallel_restricted)]
fn embed(
    embedder: Option<&str>,
    texts: Option<Vec<Option<String>>>,
    kind: default!(Option<&str>, "'document'"),
) -> Result<SetOfIterator<'static, Vector>, ErrorReport> {
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
    let embedder = embedders::get(embedder)?;
    let mut vectors = Vec::with_capacity(texts.len());
    let tenant = current_tenant()?;
    let access = access(&embedder, &tenant)?;
    for part in client::parts(&embedder, &texts) {
        let (whose, timeout) = (client::this_client(&tenant, 0), settings::gateway_timeout());
        let answer = client::embed(&embedder, &access, kind, part.to_vec(), whose, timeout)?;
        vectors.extend(answer.numbers().chunks(embedder.dimension).map(|v| Vector(v.to_vec())));
    }
    Ok(SetOfIterator::new(vectors))
}

#[pg_extern(stable, parallel_restricted)]
fn count_tokens(text: Option<&str>, embedder: default!(Option<&str>, "NULL")) -> Result<i32, ErrorReport> {
    let text = required("text", text)?;
    let id = embedder.map_or_else(settings::default_embedder, str::to_string);
    let embedder = embedders::get(&id)?;
    Ok(client::count_tokens(&embedder, text, settings::gateway_timeout())? as i32)
}

/// For the rows that the extension's own script inserts.
#[pg_extern(immutable, parallel_safe)]
fn _fingerprint(provider: &str, model: &str, dimension: i32, config: Jsonb) -> Result<i64, ErrorReport> {
    let config = EmbedderConfig::parse(&required("config", value("config", Some(config))?)?)
        .map_err(|problems| Error::Configuration { object: "config".into(), problems })?;
    let embedder = Embedder {
        id: String::new(),
        provider: provider.into(),
        model: model.into(),
        dimension: dimension.max(0) as usize,
        base_url: None,
        config,
    };
    Ok(embedder.fingerprint())
}
