//! SQL functions over API keys.

use super::sql::Identity;
use super::{assume_api_key as assuming, create_api_key as creating};
use crate::pg::function_arguments::{elements, required};
use crate::pg::report::{hidden, reported};
use crate::pg::role;
use crate::tenants::bindings;
use pgrx::datum::TimestampWithTimeZone;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(volatile, parallel_unsafe)]
fn create_api_key(
    name: Option<&str>,
    role_name: default!(Option<&str>, "NULL"),
    tenant: default!(Option<&str>, "NULL"),
    scopes: default!(Option<Vec<Option<String>>>, "'{}'"),
    expires_at: default!(Option<TimestampWithTimeZone>, "NULL"),
    requests_per_minute: default!(Option<i32>, "NULL"),
) -> Result<String, ErrorReport> {
    reported(|| {
        let identity = Identity {
            role_name: role_name.map_or_else(role::caller_name, str::to_string),
            tenant_id: tenant.map_or_else(bindings::current, |tenant| Ok(tenant.to_string()))?,
            scopes: elements("scopes", required("scopes", scopes)?)?,
            requests_per_minute,
        };
        let expires_at = expires_at.map(TimestampWithTimeZone::into_inner).filter(|time| *time != i64::MAX);
        creating::create_api_key(required("name", name)?, identity, expires_at)
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn drop_api_key(key_id: Option<&str>) -> Result<bool, ErrorReport> {
    reported(|| creating::drop_api_key(required("key_id", key_id)?))
}

#[pg_extern(volatile, parallel_unsafe)]
fn assume_api_key(
    key: Option<&str>,
) -> Result<
    TableIterator<'static, (name!(key_id, String), name!(requests_per_minute, Option<i32>))>,
    ErrorReport,
> {
    reported(|| {
        hidden(|| {
            let (key_id, identity) = assuming::assume_api_key(required("key", key)?)?;
            Ok(TableIterator::once((key_id, identity.requests_per_minute)))
        })
    })
}
