//! Keyword search, over the tables kb.bm25_segments, bm25_terms, bm25_chunks and bm25_pending.
//! kb_search::bm25 describes the contents of their pages.
//!
//! As in SQLite's FTS5, the index is kept in rows, so that rollback, snapshots, standbys and dumps are
//! PostgreSQL's.
//!
//! A chunk is written with its words (`kb.chunks.terms`) and noted in kb.bm25_pending. When it is deleted, a
//! trigger adds a row that has its words. Rows are only added, so no writer waits for another or for the
//! worker. The worker folds the pending rows of a build and tenant into a segment, in which deleted chunks
//! are tombstones, and merges the youngest segments when they are too many for their size; the indexer does
//! the large merges (`keyword/upkeep/word_merges.rs`). A question reads the segments of the tenants that the
//! caller may read, and the pending rows, under one snapshot. The number of chunks, their lengths and the
//! document frequencies are therefore those of the chunks that the snapshot sees.
//!
//! **Invariant:** a segment never changes. The join to kb.chunks leaves out chunks that are gone: an edited
//! chunk has a new id, and a chunk that is deleted and put again has the same id and the same words.
//!
//! **Invariant:** a segment belongs to one tenant, so the statistics never include chunks of tenants that the
//! caller may not read.

mod sql;
pub mod terms;
pub mod upkeep;
pub mod word_statistics;

pub use sql::{Owner, postings, words};

use sql::{fold, merge};
