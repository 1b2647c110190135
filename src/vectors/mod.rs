//! Where vectors are kept: one trait, and an implementation for each type of vector database.
//!
//! `pgvector.rs` (tables with indexes) and `memory.rs` (unlogged ones) are two kinds of a table, whose SQL
//! they share. A store outside PostgreSQL would implement [`VectorStore`] itself. Triggers hold true that a
//! vector belongs to a chunk; `sql/tables.sql` says why these are no foreign keys.
//!
//! A build's own table is named after the build and goes with it. A table that several knowledge bases use
//! has no index, and each build in it is scanned exactly, until it has `min_rows` vectors and moves to a
//! table of its own (`own_table.rs`). Vector tables are no members of the extension, because pg_dump would
//! not dump their definition, but depend on it, so that DROP EXTENSION drops them. That dependency does not
//! survive a dump, and the worker makes it again.
//!
//! **Invariant:** only this room names a vector table.
//!
//! **Invariant:** the rows of kb.chunks and kb.documents decide what there is and who may read it. A vector
//! without its chunk is in no answer.

mod api;
mod create_vector_db;
mod delete_vectors;
mod drop_vector_db;
mod sql;
mod vector_count;

pub use sql::{
    Health, Scan, Search, Searched, Size, VectorDb, VectorStore, attach_restored, drop_unused, grants, index,
    is_being_restored, lost, move_out, move_vectors, owned, refresh_statistics, size, tail, unindexed,
    unused, vector_dbs,
};
