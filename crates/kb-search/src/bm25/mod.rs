//! A full text index ranked by BM25, whose segments are pages in table rows. Pure.
//!
//! A segment is immutable. It has chunks, numbered from 0, and tombstones: chunks of older segments that are gone.
//! Statistics are signed sums over segments: those of a segment count its chunks less its tombstones.

mod build;
mod bytes;
mod corrupt;
mod cursor;
pub mod joined;
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
pub use search::{Question, search};
pub use terms::{Occurrences, Share, frequencies};
pub use top::{Hit, Top};

#[cfg(test)]
mod corrupt_tests;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod test_chunks;
