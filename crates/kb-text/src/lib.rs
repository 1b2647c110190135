//! From a document to chunks: text of JSON, parse, chunk, diff, batch; and questions to evaluate with. Pure.

#![forbid(unsafe_code)]

pub mod answers;
pub mod batch;
pub mod chunk;
pub mod chunking;
pub mod context;
pub mod diff;
pub mod json_text;
pub mod model_files;
pub mod parse;
pub mod rechunk;
pub mod tokenizer;
