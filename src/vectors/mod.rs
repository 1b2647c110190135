//! Where vectors are kept: one trait, and an implementation for each type of vector database.
//!
//! `sql/pgvector.rs` (tables with indexes) and `sql/memory.rs` (unlogged tables) are two kinds of table and
//! share their SQL. A store outside PostgreSQL would implement [`VectorStore`] itself. Triggers ensure that
//! a vector belongs to a chunk; `sql/tables.sql` says why these are no foreign keys.
//!
//! A build's own table is named after the build and dropped with it. A table that several knowledge bases
//! use has no index, and each build in it is scanned exactly, until it has `min_rows` vectors and moves to
//! a table of its own (`sql/own_table.rs`). Vector tables are not members of the extension, because pg_dump
//! would not dump their definitions, but they depend on it, so that DROP EXTENSION drops them. A dump does
//! not contain that dependency, so the worker makes it again after a restore.
//!
//! **Invariant:** only this room names a vector table.
//!
//! **Invariant:** the rows of kb.chunks and kb.documents decide what exists and who may read it. A vector
//! without its chunk is in no answer.

mod api;
mod create_vector_db;
pub mod moved_builds;
mod sql;
pub mod upkeep;

pub use crate::vectors::sql::hnsw;
pub use sql::{
    Health, Scan, Searched, VectorDb, VectorSearch, VectorStore, attach_restored, grants, is_being_restored,
    lost, move_vectors, owned, tail, vector_dbs,
};

use sql::{Size, drop_unused, move_out, refresh_statistics, size, unindexed, unused};
