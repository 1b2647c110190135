//! The SQL of this room, a file per table.

pub mod filter;
pub mod metadata_indexes;
