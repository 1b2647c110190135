//! Documents and their chunks.

mod api;
mod chunk;
mod delete_document;
mod extract_text;
pub mod new_document;
mod put_document;
mod retry;
mod sql;

pub use sql::{chunks, new_documents, stored};
