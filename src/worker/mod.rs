//! The background processes: gateway, launcher, worker, indexer.

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

#[cfg(feature = "server")]
mod backfill;
#[cfg(feature = "server")]
mod build_place;
#[cfg(feature = "server")]
mod claims;
#[cfg(feature = "server")]
mod compare;
#[cfg(feature = "server")]
mod consult;
#[cfg(feature = "server")]
mod entry;
#[cfg(feature = "server")]
mod gateway_link;
#[cfg(feature = "server")]
mod gateway_process;
#[cfg(feature = "server")]
mod helper_thread;
#[cfg(feature = "server")]
mod housekeeping;
#[cfg(feature = "server")]
mod index_process;
#[cfg(feature = "server")]
mod indexes;
#[cfg(feature = "server")]
mod intake;
#[cfg(feature = "server")]
mod keyword_index;
#[cfg(feature = "server")]
mod launcher;
#[cfg(feature = "server")]
mod leases;
#[cfg(feature = "server")]
mod log;
#[cfg(feature = "server")]
mod open_documents;
#[cfg(feature = "server")]
mod outcome;
#[cfg(feature = "server")]
mod prepare;
#[cfg(feature = "server")]
mod query_log;
#[cfg(feature = "server")]
mod receive;
#[cfg(feature = "server")]
mod row_intake;
#[cfg(feature = "server")]
mod runner;
#[cfg(feature = "server")]
mod send;
#[cfg(feature = "server")]
mod send_queue;
#[cfg(feature = "server")]
mod slow_intake;
#[cfg(feature = "server")]
mod source_changes;
#[cfg(feature = "server")]
mod source_faults;
#[cfg(feature = "server")]
mod statistics;
#[cfg(feature = "server")]
mod target;
#[cfg(feature = "server")]
mod unindexed;
#[cfg(feature = "server")]
mod unsaved;
#[cfg(feature = "server")]
mod unused_tables;
#[cfg(feature = "server")]
mod word_merges;

#[cfg(feature = "server")]
pub use entry::register;
