//! The SQL surface, a file per noun: parse, call one use case, convert.

use crate::error::{Error, Result};

/// A required argument of a function that is not STRICT because others may be NULL.
fn required<T>(argument: &'static str, value: Option<T>) -> Result<T> {
    value.ok_or(Error::Null { argument })
}

mod chunking;
mod documents;
mod embedders;
mod health;
mod knowledge_bases;
mod query;
mod runs;
mod vector_dbs;
