//! Keyword search, over the tables kb.bm25_segments, bm25_terms, bm25_chunks and bm25_pending. What is in their
//! pages is in kb_search::bm25.
//!
//! As in SQLite's FTS5, the index is kept in rows, so that rollback, snapshots, standbys and dumps are
//! PostgreSQL's.
//!
//! A chunk is written with its words (`kb.chunks.terms`) and noted in kb.bm25_pending. When it is deleted, a
//! trigger adds a row that has its words. Both are only added, so no writer waits for another or for the
//! worker. The worker folds what waits of a build and tenant into a segment, in which the chunks that went
//! are tombstones, and merges the youngest segments while they are many for their size; the indexer does the
//! large merges (`worker/upkeep/word_merges.rs`). A question reads the segments of the tenants that the caller may
//! read, and what waits, under one snapshot. So numbers of chunks, lengths and document frequencies are those
//! of the chunks that the snapshot sees.
//!
//! **Invariant:** a segment never changes. A chunk that is gone is left out by the join to kb.chunks: an
//! edited chunk has a new id, and a chunk that is deleted and put again has the same id and the same words.
//!
//! **Invariant:** a segment is of one tenant, so statistics never have chunks of tenants that the caller may
//! not read.

mod sql;
pub mod terms;
pub mod word_statistics;

pub use sql::{Owner, fold, merge, read, words};
