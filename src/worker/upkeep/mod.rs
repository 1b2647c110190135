//! What is done beside documents.

pub mod build_place;
pub mod growth;
pub mod housekeeping;
pub mod index_schedule;
pub mod indexes;
pub mod keyword_index;
pub mod query_log;
pub mod statistics;
pub mod unused_tables;
pub mod word_merges;
