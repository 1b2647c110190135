//! The SQL of this room, a file per table.

pub mod filtered_chunks;
pub mod named_chunks;
pub mod passages;
pub mod query_log;
pub mod search;
