//! The filters of questions as conditions in SQL, and the indexes on keys of metadata that serve them.

mod sql;
pub mod upkeep;

pub use sql::{filter, metadata_indexes};
