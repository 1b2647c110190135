//! Attached tables, whose rows are documents.

mod api;
mod attach_table;
mod detach_table;
pub mod partitions;
mod reconcile;
pub mod row_document;
pub mod row_presence;
mod row_status;
pub mod row_texts;
mod rows_changed;
pub mod source_tables;
mod sql;
mod tables_altered;

pub use sql::{changes, row_documents, sources};
