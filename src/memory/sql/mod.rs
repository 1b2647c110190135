//! The SQL of this room, a file per table.

pub mod consolidations;
pub mod entries;
pub mod merged_entries;
pub mod sources;
pub mod stores;
