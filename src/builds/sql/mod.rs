//! The SQL of this room, a file per table.

pub mod builds;
pub mod knowledge_bases;
pub mod runs;
