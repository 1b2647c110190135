//! From a document to chunks: text of JSON, parse, chunk, diff, batch; and questions to evaluate with. Pure.

pub mod answers;
pub mod batch;
pub mod beir;
pub mod chunk;
pub mod context;
pub mod diff;
pub mod json_text;
pub mod parse;
pub mod rechunk;
