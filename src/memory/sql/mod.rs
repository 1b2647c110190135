//! The SQL of this room, a file per table.

pub mod entries;
pub mod sources;
pub mod stores;
