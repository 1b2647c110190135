//! What the worker and the indexer do for keyword search: fold chunks that wait into segments, and merge
//! these.

mod keyword_index;
mod word_merges;

pub use keyword_index::KeywordIndex;
pub use word_merges::merge_large;
