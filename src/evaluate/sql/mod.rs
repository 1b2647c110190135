//! The SQL of this room, a file per table.

pub mod eval_sets;
pub mod index_recall;
