//! A full text index ranked by BM25, whose segments are pages in rows of a table.
//!
//! A segment is immutable. It contains chunks, numbered from 0, and tombstones for deleted chunks of older
//! segments. The statistics of a segment count its chunks minus its tombstones, so that they may be negative.
//! The statistics of the index are the sums over its segments.

mod build;
mod bytes;
pub mod compound;
mod corrupt;
mod cursor;
mod merge;
mod page;
mod page_writer;
pub mod plain_words;
mod postings;
mod renumbering;
mod score;
mod search;
pub mod signs;
pub mod terms;
mod top;

pub use build::Builder;
pub use corrupt::Corrupt;
pub use merge::{Source, merge};
pub use page::{List, find};
pub use page_writer::Page;
pub use renumbering::DEAD;
pub use score::{Parameters, Scorer, Totals, idf};
pub use search::{TermQuery, search};
pub use terms::{Occurrences, Share, frequencies};
pub use top::{ScoredChunk, Top};

#[cfg(test)]
mod corrupt_tests;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod test_chunks;
