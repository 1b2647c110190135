//! Documents and their chunks.

mod api;
mod chunk;
pub mod delete_document;
mod extract_text;
pub mod new_document;
pub mod put_document;
mod put_objects;
mod retry;
mod sql;
mod sync_documents;
pub mod work;

pub use sql::{new_documents, stored};

use sql::chunks;
