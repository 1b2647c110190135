//! Arguments of SQL functions that are checked before use.

use crate::pg::json::Jsonb;
use kb_types::Json;
use kb_types::error::{Error, Result};
use serde_json::Value;

/// A required argument. The function is not STRICT because its other arguments may be NULL.
pub fn required<T>(argument: &'static str, value: Option<T>) -> Result<T> {
    value.ok_or(Error::Null { argument })
}

/// An array argument whose elements must not be NULL.
pub fn elements<T>(argument: &'static str, values: Vec<Option<T>>) -> Result<Vec<T>> {
    values
        .into_iter()
        .collect::<Option<Vec<T>>>()
        .ok_or_else(|| Error::Argument { argument, problem: "an element is NULL".into() })
}

/// A JSON argument that is passed on without being parsed.
pub fn json(argument: &'static str, given: Option<Jsonb>) -> Result<Option<Json>> {
    let checked = given.map(|Jsonb(json)| json.check().map(|()| json)).transpose();
    checked.map_err(|problem| Error::Argument { argument, problem })
}

/// A JSON argument as a parsed value.
pub fn value(argument: &'static str, given: Option<Jsonb>) -> Result<Option<Value>> {
    let read = given.map(|Jsonb(json)| json.value()).transpose();
    read.map_err(|problem| Error::Argument { argument, problem })
}
