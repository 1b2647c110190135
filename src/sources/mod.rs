//! Sources that a run lists and reads: folders, Git repositories, pages of the web, buckets and queries,
//! whose files, objects and rows are documents.
//!
//! A run is a job of kind `source` (`work/mod.rs`). It lists the source, compares what it lists with the
//! documents that the source has, reads what is new or changed, and deletes documents that a listing which
//! was read to its end no longer has. The state of a run is in kb.documents only: each document has the
//! version of the file that was read (`version`), so that a run which was killed begins anew and finds what
//! it has done. At most one run of a source is in progress, because it has one job.
//!
//! A query is run on the main thread before (`work/run_query.rs`), and what it has returned is read like
//! files.
//!
//! Attached tables are sources, too; they are in `tables/mod.rs`.

mod api;
mod bucket;
mod config;
mod create_source;
mod drop_source;
mod folder;
mod git;
mod import_files;
mod pattern;
mod query;
mod query_columns;
mod reader;
mod schedule;
mod sql;
pub mod start_runs;
mod transcripts;
pub mod upkeep;
mod web;
pub mod work;
