//! The SQL surface, a file per noun: parse, call one use case, convert.

use crate::error::{Error, Result};

/// A required argument of a function that is not STRICT because others may be NULL.
fn required<T>(argument: &'static str, value: Option<T>) -> Result<T> {
    value.ok_or(Error::Null { argument })
}

/// An array argument whose elements must not be NULL.
fn elements<T>(argument: &'static str, values: Vec<Option<T>>) -> Result<Vec<T>> {
    values
        .into_iter()
        .collect::<Option<Vec<T>>>()
        .ok_or_else(|| Error::Argument { argument, problem: "an element is NULL".into() })
}

mod chunking;
mod documents;
mod embedders;
mod health;
mod knowledge_bases;
mod money;
mod query;
mod runs;
mod secrets;
mod vector_dbs;
