//! Attached tables, whose rows are documents.

mod api;
mod attach_table;
mod detach_table;
pub mod intake;
pub mod partitions;
mod reconcile;
mod row_document;
mod row_presence;
mod row_status;
mod row_texts;
mod rows_changed;
pub mod source_tables;
mod sql;
mod tables_altered;

pub use sql::{changes, sources};

use sql::row_documents;
