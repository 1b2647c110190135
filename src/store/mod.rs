//! The only room with SQL text: a file per table. Functions take and give plain values.

pub mod builds;
pub mod chunks;
pub mod documents;
pub mod embedders;
pub mod jobs;
pub mod knowledge_bases;
pub mod origins;
pub mod runs;
pub mod search;
pub mod secrets;
pub mod server;
pub mod usage;
pub mod vector_dbs;
pub mod vectors;
