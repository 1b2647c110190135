//! The background processes: gateway, launcher, worker, indexer. `entry.rs` is where PostgreSQL enters them.
//!
//! The worker's loop is in `runner.rs`. It owns the parts. Each part has a state that no other part changes,
//! and a function takes the parts that it needs.
//!
//! A document goes through `intake.rs` (with `claims.rs` and `prepare.rs`), `open_documents.rs`,
//! `send_queue.rs`, `send.rs`, `gateway_link.rs`, the gateway, `receive.rs` and `outcome.rs`. A row of an
//! attached table first goes through `source_changes.rs` (or `backfill.rs`) and `row_intake.rs`.

// Pure: bookkeeping of the worker and the launcher.
pub mod back_pressure;
pub mod backoff;
pub mod embed_batch;
pub mod fresh_chunks;
pub mod growth;
pub mod in_flight;
pub mod index_schedule;
pub mod lock_pause;
pub mod pace;
pub mod pauses;
pub mod rests;
pub mod roster;
pub mod round_robin;
pub mod under_way;

mod backfill;
mod build_place;
mod claims;
mod compare;
mod consult;
mod entry;
mod gateway_link;
mod gateway_process;
mod helper_thread;
mod housekeeping;
mod index_process;
mod indexes;
mod intake;
mod keyword_index;
mod launcher;
mod leases;
mod log;
mod open_documents;
mod outcome;
mod prepare;
mod query_log;
mod receive;
mod row_intake;
mod runner;
mod send;
mod send_queue;
mod slow_intake;
mod source_changes;
mod source_faults;
mod statistics;
mod target;
mod unindexed;
mod unsaved;
mod unused_tables;
mod word_merges;

pub use entry::register;
