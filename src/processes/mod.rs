//! The background processes: entry points, launcher, gateway and indexer.

pub mod entry;
pub mod gateway_process;
pub mod indexer;
pub mod launcher;
pub mod roster;
