//! The worker of a database: takes jobs in turn, keeps the gateway busy, writes what comes back, and looks
//! after the rest. It knows no kind of work by name.
//!
//! - `work/mod.rs` is the contract with a kind of work ([`crate::work::Work`]): the worker claims jobs, the
//!   kind reads, prepares and writes them, and says of which chunks vectors are missing; the worker has these
//!   embedded, writes them, and has the kind end the job, or list it as failed. Documents are such a kind,
//!   and a feed ([`crate::work::Feed`]) makes documents of something else: of rows of attached tables.
//! - `upkeep/mod.rs` is the contract with what has no job ([`crate::upkeep::Upkeep`]): builds, indexes,
//!   segments of keyword search, logs, usage.
//! - `kinds.rs` lists them all. No other file of this room names one: `works.rs` tells by `kb.jobs.kind` of
//!   which kind a job is.
//!
//! [`context::Worker`] is the one context. It owns the parts, and no part has another: a part takes values or
//! shared references, and what it wants done elsewhere it returns as [`crate::work::Event`]s (a job failed,
//! an embedder refused, a build has grown), which `context.rs` applies in one place, each in a transaction of
//! its own. What needs several parts is a method of `Worker`, in the file of its stage:
//!
//! | stage | file | parts |
//! |---|---|---|
//! | the loop: when to work, wait, start over and leave | `runner.rs` | clock, backoff |
//! | whose jobs are claimed next | `intake/take_in.rs` | `claims.rs`, pauses, the kinds of work |
//! | chunks to the gateway | `embed/send.rs` | `send_queue.rs`, `gateway_link.rs`, open documents |
//! | vectors to tables | `embed/receive.rs` | `in_flight.rs`, `unsaved.rs`, open documents |
//! | how documents end | `finish/outcome.rs` | `open_documents.rs`, `leases.rs` |
//! | what has no job | `upkeep.rs` | the list of `kinds.rs` |
//!
//! Where statements of the worker and of a kind of work must be one commit, the contract says so: vectors are
//! written with the end of the documents that have all of theirs ([`crate::work::Work::finish`]), vectors of
//! equal texts are copied under the locks of their documents ([`crate::work::Work::lock_current`]), and a job
//! that failed for good ends with its record ([`crate::work::Work::fail`]).

mod context;
mod embed;
mod fault_pause;
mod finish;
pub mod intake;
mod kinds;
pub mod runner;
mod upkeep;
mod works;
