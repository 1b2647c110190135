//! SQL functions over embedders, rerankers, chat models, extractors and secrets.

use super::settings::WantedService;
use super::{check, define, embed as embedding, secrets};
use crate::pg::function_arguments::{elements, required, value};
use crate::pg::json::Jsonb;
use crate::pg::report::{hidden, reported};
use crate::pg::vector::Vector;
use crate::resources::{self, Resource};
use kb_types::error::Error;
use kb_types::{Embedder, EmbedderConfig, Kind, ServiceKind};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// The arguments of a call.
#[derive(Default)]
struct ServiceArgs<'a> {
    provider: Option<&'a str>,
    model: Option<&'a str>,
    dimension: Option<i32>,
    base_url: Option<&'a str>,
    secret: Option<&'a str>,
    config: Option<Jsonb>,
}

impl ServiceArgs<'_> {
    fn wanted(self) -> Result<WantedService, Error> {
        Ok(WantedService {
            provider: self.provider.map(str::to_string),
            model: self.model.map(str::to_string),
            dimension: self.dimension,
            base_url: self.base_url.map(str::to_string),
            secret: self.secret.map(str::to_string),
            config: value("config", self.config)?,
        })
    }
}

/// Errors do not show the statement, because it may contain a key.
fn create(kind: ServiceKind, id: Option<&str>, given: ServiceArgs) -> Result<(), ErrorReport> {
    reported(|| {
        hidden(|| {
            let id = required("id", id)?;
            required("provider", given.provider)?;
            define::create(kind, id, given.wanted()?)
        })
    })
}

/// A caller gives an id, and the etag that the service must have.
fn alter(
    kind: ServiceKind,
    (id, if_match): (Option<&str>, Option<&str>),
    given: ServiceArgs,
) -> Result<(), ErrorReport> {
    reported(|| {
        hidden(|| {
            let id = required("id", id)?;
            resources::check(Resource::Service(kind), id, if_match)?;
            define::alter(kind, id, given.wanted()?)
        })
    })
}

fn drop_service(kind: ServiceKind, id: Option<&str>, if_match: Option<&str>) -> Result<(), ErrorReport> {
    reported(|| {
        let id = required("id", id)?;
        resources::check(Resource::Service(kind), id, if_match)?;
        define::drop(kind, id)
    })
}

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
    create(ServiceKind::Embedder, id, ServiceArgs { provider, model, dimension, base_url, secret, config })
}

#[pg_extern(volatile, parallel_unsafe)]
fn create_reranker(
    id: Option<&str>,
    provider: Option<&str>,
    model: default!(Option<&str>, "NULL"),
    base_url: default!(Option<&str>, "NULL"),
    secret: default!(Option<&str>, "NULL"),
    config: default!(Option<Jsonb>, "NULL"),
) -> Result<(), ErrorReport> {
    create(
        ServiceKind::Reranker,
        id,
        ServiceArgs { provider, model, base_url, secret, config, ..ServiceArgs::default() },
    )
}

#[pg_extern(volatile, parallel_unsafe)]
fn create_llm(
    id: Option<&str>,
    provider: Option<&str>,
    model: default!(Option<&str>, "NULL"),
    base_url: default!(Option<&str>, "NULL"),
    secret: default!(Option<&str>, "NULL"),
    config: default!(Option<Jsonb>, "NULL"),
) -> Result<(), ErrorReport> {
    create(
        ServiceKind::Llm,
        id,
        ServiceArgs { provider, model, base_url, secret, config, ..ServiceArgs::default() },
    )
}

#[pg_extern(volatile, parallel_unsafe)]
fn create_extractor(
    id: Option<&str>,
    provider: Option<&str>,
    model: default!(Option<&str>, "NULL"),
    base_url: default!(Option<&str>, "NULL"),
    secret: default!(Option<&str>, "NULL"),
    config: default!(Option<Jsonb>, "NULL"),
) -> Result<(), ErrorReport> {
    create(
        ServiceKind::Extractor,
        id,
        ServiceArgs { provider, model, base_url, secret, config, ..ServiceArgs::default() },
    )
}

#[pg_extern(volatile, parallel_unsafe)]
fn alter_embedder(
    id: Option<&str>,
    model: default!(Option<&str>, "NULL"),
    dimension: default!(Option<i32>, "NULL"),
    base_url: default!(Option<&str>, "NULL"),
    secret: default!(Option<&str>, "NULL"),
    config: default!(Option<Jsonb>, "NULL"),
    if_match: default!(Option<&str>, "NULL"),
) -> Result<(), ErrorReport> {
    alter(
        ServiceKind::Embedder,
        (id, if_match),
        ServiceArgs { model, dimension, base_url, secret, config, ..ServiceArgs::default() },
    )
}

#[pg_extern(volatile, parallel_unsafe)]
fn alter_reranker(
    id: Option<&str>,
    model: default!(Option<&str>, "NULL"),
    base_url: default!(Option<&str>, "NULL"),
    secret: default!(Option<&str>, "NULL"),
    config: default!(Option<Jsonb>, "NULL"),
    if_match: default!(Option<&str>, "NULL"),
) -> Result<(), ErrorReport> {
    alter(
        ServiceKind::Reranker,
        (id, if_match),
        ServiceArgs { model, base_url, secret, config, ..ServiceArgs::default() },
    )
}

#[pg_extern(volatile, parallel_unsafe)]
fn alter_llm(
    id: Option<&str>,
    model: default!(Option<&str>, "NULL"),
    base_url: default!(Option<&str>, "NULL"),
    secret: default!(Option<&str>, "NULL"),
    config: default!(Option<Jsonb>, "NULL"),
    if_match: default!(Option<&str>, "NULL"),
) -> Result<(), ErrorReport> {
    alter(
        ServiceKind::Llm,
        (id, if_match),
        ServiceArgs { model, base_url, secret, config, ..ServiceArgs::default() },
    )
}

#[pg_extern(volatile, parallel_unsafe)]
fn alter_extractor(
    id: Option<&str>,
    model: default!(Option<&str>, "NULL"),
    base_url: default!(Option<&str>, "NULL"),
    secret: default!(Option<&str>, "NULL"),
    config: default!(Option<Jsonb>, "NULL"),
    if_match: default!(Option<&str>, "NULL"),
) -> Result<(), ErrorReport> {
    alter(
        ServiceKind::Extractor,
        (id, if_match),
        ServiceArgs { model, base_url, secret, config, ..ServiceArgs::default() },
    )
}

#[pg_extern(volatile, parallel_unsafe)]
fn drop_embedder(id: Option<&str>, if_match: default!(Option<&str>, "NULL")) -> Result<(), ErrorReport> {
    drop_service(ServiceKind::Embedder, id, if_match)
}

#[pg_extern(volatile, parallel_unsafe)]
fn drop_reranker(id: Option<&str>, if_match: default!(Option<&str>, "NULL")) -> Result<(), ErrorReport> {
    drop_service(ServiceKind::Reranker, id, if_match)
}

#[pg_extern(volatile, parallel_unsafe)]
fn drop_llm(id: Option<&str>, if_match: default!(Option<&str>, "NULL")) -> Result<(), ErrorReport> {
    drop_service(ServiceKind::Llm, id, if_match)
}

#[pg_extern(volatile, parallel_unsafe)]
fn drop_extractor(id: Option<&str>, if_match: default!(Option<&str>, "NULL")) -> Result<(), ErrorReport> {
    drop_service(ServiceKind::Extractor, id, if_match)
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
        let check = check::check(ServiceKind::Embedder, required("id", id)?)?;
        let dimension = check.dimension.map(|d| d as i32);
        Ok(TableIterator::once((check.problem.is_none(), dimension, check.latency_ms, check.problem)))
    })
}

type Checked =
    TableIterator<'static, (name!(ok, bool), name!(latency_ms, f64), name!(problem, Option<String>))>;

#[pg_extern(volatile, parallel_restricted)]
fn check_reranker(
    id: Option<&str>,
) -> Result<
    TableIterator<'static, (name!(ok, bool), name!(latency_ms, f64), name!(problem, Option<String>))>,
    ErrorReport,
> {
    checked(ServiceKind::Reranker, id)
}

#[pg_extern(volatile, parallel_restricted)]
fn check_llm(
    id: Option<&str>,
) -> Result<
    TableIterator<'static, (name!(ok, bool), name!(latency_ms, f64), name!(problem, Option<String>))>,
    ErrorReport,
> {
    checked(ServiceKind::Llm, id)
}

#[pg_extern(volatile, parallel_restricted)]
fn check_extractor(
    id: Option<&str>,
) -> Result<
    TableIterator<'static, (name!(ok, bool), name!(latency_ms, f64), name!(problem, Option<String>))>,
    ErrorReport,
> {
    checked(ServiceKind::Extractor, id)
}

fn checked(kind: ServiceKind, id: Option<&str>) -> Result<Checked, ErrorReport> {
    reported(|| {
        let check = check::check(kind, required("id", id)?)?;
        Ok(TableIterator::once((check.problem.is_none(), check.latency_ms, check.problem)))
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
        let vectors = embedding::embed(embedder, &texts, kind)?;
        Ok(SetOfIterator::new(vectors.into_iter().map(Vector)))
    })
}

#[pg_extern(stable, parallel_restricted)]
fn default_embedder() -> Result<String, ErrorReport> {
    reported(super::default_embedder)
}

#[pg_extern(stable, parallel_restricted)]
fn count_tokens(text: Option<&str>, embedder: default!(Option<&str>, "NULL")) -> Result<i32, ErrorReport> {
    reported(|| Ok(embedding::count_tokens(required("text", text)?, embedder)? as i32))
}

/// For the rows that the extension's script inserts.
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

/// Errors do not show the statement, because it contains a key.
#[pg_extern(volatile, parallel_unsafe)]
fn set_secret(name: Option<&str>, value: Option<&str>) -> Result<(), ErrorReport> {
    reported(|| hidden(|| secrets::set(required("name", name)?, required("value", value)?)))
}

#[pg_extern(volatile, parallel_unsafe)]
fn drop_secret(name: Option<&str>) -> Result<(), ErrorReport> {
    reported(|| secrets::drop(required("name", name)?))
}
