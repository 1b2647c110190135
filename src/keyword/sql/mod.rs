//! The tables of keyword search: kb.bm25_segments, bm25_terms, bm25_chunks, bm25_pending.

pub mod fold;
mod known_words;
pub mod merge;
pub mod postings;
mod segments;
pub mod words;

pub use segments::Owner;

/// The number of ids in a row of kb.bm25_chunks, which makes 4 kB.
const IDS_PER_PART: usize = 256;
