//! The background processes: entry points, launcher, gateway and indexer.

mod build_place;
pub mod entry;
pub mod gateway_process;
pub mod indexer;
pub mod launcher;
pub mod roster;
