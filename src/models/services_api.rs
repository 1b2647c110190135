//! SQL functions over rerankers and chat models.

use crate::models::service_settings::WantedService;
use crate::pg::function_arguments::{required, value};
use crate::pg::json::Jsonb;
use crate::pg::report;
use crate::pg::report::reported;

use kb_types::error::Error;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(volatile, parallel_unsafe)]
fn create_reranker(
    id: Option<&str>,
    provider: Option<&str>,
    model: default!(Option<&str>, "NULL"),
    base_url: default!(Option<&str>, "NULL"),
    secret: default!(Option<&str>, "NULL"),
    config: default!(Option<Jsonb>, "NULL"),
) -> Result<(), ErrorReport> {
    reported(|| {
        // The call may contain a key, so its errors do not show the statement.
        report::hidden(|| {
            let (id, provider) = (required("id", id)?, required("provider", provider)?);
            crate::models::create_reranker::create_reranker(
                id,
                wanted(Some(provider), model, base_url, secret, config)?,
            )
        })
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn alter_reranker(
    id: Option<&str>,
    model: default!(Option<&str>, "NULL"),
    base_url: default!(Option<&str>, "NULL"),
    secret: default!(Option<&str>, "NULL"),
    config: default!(Option<Jsonb>, "NULL"),
) -> Result<(), ErrorReport> {
    reported(|| {
        report::hidden(|| {
            let id = required("id", id)?;
            crate::models::alter_reranker::alter_reranker(id, wanted(None, model, base_url, secret, config)?)
        })
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn drop_reranker(id: Option<&str>) -> Result<(), ErrorReport> {
    reported(|| crate::models::drop_reranker::drop_reranker(required("id", id)?))
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
    reported(|| {
        report::hidden(|| {
            let (id, provider) = (required("id", id)?, required("provider", provider)?);
            crate::models::create_llm::create_llm(
                id,
                wanted(Some(provider), model, base_url, secret, config)?,
            )
        })
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn alter_llm(
    id: Option<&str>,
    model: default!(Option<&str>, "NULL"),
    base_url: default!(Option<&str>, "NULL"),
    secret: default!(Option<&str>, "NULL"),
    config: default!(Option<Jsonb>, "NULL"),
) -> Result<(), ErrorReport> {
    reported(|| {
        report::hidden(|| {
            let id = required("id", id)?;
            crate::models::alter_llm::alter_llm(id, wanted(None, model, base_url, secret, config)?)
        })
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn drop_llm(id: Option<&str>) -> Result<(), ErrorReport> {
    reported(|| crate::models::drop_llm::drop_llm(required("id", id)?))
}

#[pg_extern(volatile, parallel_restricted)]
fn check_reranker(
    id: Option<&str>,
) -> Result<
    TableIterator<'static, (name!(ok, bool), name!(latency_ms, f64), name!(problem, Option<String>))>,
    ErrorReport,
> {
    reported(|| {
        let check = crate::models::check_reranker::check_reranker(required("id", id)?)?;
        Ok(TableIterator::once((check.problem.is_none(), check.latency_ms, check.problem)))
    })
}

#[pg_extern(volatile, parallel_restricted)]
fn check_llm(
    id: Option<&str>,
) -> Result<
    TableIterator<'static, (name!(ok, bool), name!(latency_ms, f64), name!(problem, Option<String>))>,
    ErrorReport,
> {
    reported(|| {
        let check = crate::models::check_llm::check_llm(required("id", id)?)?;
        Ok(TableIterator::once((check.problem.is_none(), check.latency_ms, check.problem)))
    })
}

fn wanted(
    provider: Option<&str>,
    model: Option<&str>,
    base_url: Option<&str>,
    secret: Option<&str>,
    config: Option<Jsonb>,
) -> Result<WantedService, Error> {
    Ok(WantedService {
        provider: provider.map(str::to_string),
        model: model.map(str::to_string),
        base_url: base_url.map(str::to_string),
        secret: secret.map(str::to_string),
        config: value("config", config)?,
    })
}
