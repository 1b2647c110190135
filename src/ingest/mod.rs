//! From a document to chunks: parse, chunk, diff, batch. Pure.

pub mod batch;
pub mod chunk;
pub mod diff;
pub mod parse;
#[cfg(feature = "server")]
pub mod put;
pub mod rechunk;
#[cfg(feature = "server")]
pub mod wait;
