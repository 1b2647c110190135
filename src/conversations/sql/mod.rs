//! The SQL of this room, a file per table.

pub mod conversations;
pub mod extractions;
pub mod summaries;
pub mod turns;
