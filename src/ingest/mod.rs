//! From a document to chunks: parse, chunk, diff, batch. Pure.

pub mod batch;
pub mod chunk;
pub mod diff;
pub mod parse;
pub mod rechunk;
