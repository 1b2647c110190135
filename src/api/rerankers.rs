//! SQL functions over rerankers and chat models.

use super::{required, value};
use crate::catalog::service_settings::WantedService;
use crate::pg::json::Jsonb;
use crate::pg::report;
use crate::pg::report::reported;
use crate::use_cases;
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
            use_cases::create_reranker(id, wanted(Some(provider), model, base_url, secret, config)?)
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
            use_cases::alter_reranker(id, wanted(None, model, base_url, secret, config)?)
        })
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn drop_reranker(id: Option<&str>) -> Result<(), ErrorReport> {
    reported(|| use_cases::drop_reranker(required("id", id)?))
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
            use_cases::create_llm(id, wanted(Some(provider), model, base_url, secret, config)?)
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
            use_cases::alter_llm(id, wanted(None, model, base_url, secret, config)?)
        })
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn drop_llm(id: Option<&str>) -> Result<(), ErrorReport> {
    reported(|| use_cases::drop_llm(required("id", id)?))
}

#[pg_extern(volatile, parallel_restricted)]
fn check_reranker(
    id: Option<&str>,
) -> Result<
    TableIterator<'static, (name!(ok, bool), name!(latency_ms, f64), name!(problem, Option<String>))>,
    ErrorReport,
> {
    reported(|| {
        let check = use_cases::check_reranker(required("id", id)?)?;
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
        let check = use_cases::check_llm(required("id", id)?)?;
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
