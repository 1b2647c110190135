//! What the worker does for vectors beside writing them: has indexes built, moves builds that have outgrown a
//! shared table, drops tables that nobody uses, and takes statistics.

mod back_pressure;
mod growth;
mod statistics;
mod unindexed;
mod unused_tables;
mod wanted_indexes;

pub use crate::vectors::upkeep::wanted_indexes::{Grown, Indexes, Wish, look};
pub use statistics::Statistics;
pub use unused_tables::UnusedTables;
