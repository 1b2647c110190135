//! The SQL of this room, a file per table.

pub mod due_jobs;
pub mod queue;
