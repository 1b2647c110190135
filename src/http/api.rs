//! kb.http and kb.openapi.

use super::answer;
use crate::pg::function_arguments::required;
use crate::pg::json::Jsonb;
use crate::pg::report::reported;
use kb_types::Json;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(volatile, parallel_unsafe)]
fn http(
    method: Option<&str>,
    path: Option<&str>,
    query: default!(Option<&str>, "''"),
    headers: default!(Option<Jsonb>, "'{}'"),
    body: default!(Option<&[u8]>, "''"),
) -> Result<
    TableIterator<'static, (name!(status, i32), name!(headers, Jsonb), name!(body, Vec<u8>))>,
    ErrorReport,
> {
    reported(|| {
        let (method, path) = (required("method", method)?, required("path", path)?);
        let headers = headers.map(|Jsonb(headers)| headers).unwrap_or_else(Json::empty_object);
        let response = answer::answer(method, path, query.unwrap_or(""), &headers, body.unwrap_or(b""))?;
        let members: Vec<(&str, Json)> =
            response.headers.iter().map(|(name, value)| (*name, Json::of_text(value))).collect();
        Ok(TableIterator::once((i32::from(response.status), Jsonb(Json::object(&members)), response.body)))
    })
}

#[pg_extern(immutable, parallel_safe)]
fn openapi() -> Jsonb {
    Jsonb(Json::new(answer::openapi().to_string()))
}
