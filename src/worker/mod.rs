//! The background processes: gateway, launcher, worker, indexer. `entry.rs` is where PostgreSQL enters them.
//!
//! The worker's loop is in `runner.rs`. It owns the parts. Each part has a state that no other part changes,
//! and a function takes the parts that it needs.
//!
//! A document goes through `intake.rs` (with `claims.rs` and `prepare.rs`), `open_documents.rs`,
//! `send_queue.rs`, `send.rs`, `gateway_link.rs`, the gateway, `receive.rs` and `outcome.rs`. A row of an
//! attached table first goes through `source_changes.rs` (or `backfill.rs`) and `row_intake.rs`.

// Pure: bookkeeping of the worker and the launcher.
pub mod backoff;
pub mod embed;
pub mod finish;
pub mod intake;
pub mod lock_pause;
pub mod pace;
pub mod upkeep;

mod helper_thread;
mod log;
pub mod runner;
