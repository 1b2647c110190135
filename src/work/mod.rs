//! What a kind of work is: the contract between the worker, which drives it, and the room that implements it.
//!
//! The worker claims jobs of `kb.jobs` fairly, keeps their leases, sends texts to the gateway, writes the
//! vectors that come back, pauses and tries again. Only the [`Work`] knows what a job is about: documents
//! (`documents/work/mod.rs`). A [`Feed`] makes documents of something else: of rows of attached tables
//! (`tables/intake/mod.rs`). What has no job is an `upkeep/mod.rs`. `worker/kinds.rs` lists all of them.
//!
//! A kind of work changes nothing of the worker: it reports [`Event`]s, which the worker applies in one place
//! (`worker/context.rs`).

mod event;
mod fresh_chunks;
mod group;
pub mod helper_thread;
mod pauses;
mod target;
mod under_way;

pub use event::{Event, Written, without_reported};
pub use fresh_chunks::FreshChunks;
pub use group::Group;
pub use helper_thread::HelperThread;
pub use pauses::{LONGEST, Paused, Pauses};
pub use target::{Destination, Target, Targets};
pub use under_way::{Ended, Hold, UnderWay};

use crate::jobs::queue::Job;
use kb_types::error::Result;
use std::collections::HashSet;
use std::time::Duration;

/// The pause before something that an open transaction has locked is tried again.
pub const BUSY: Duration = Duration::from_secs(1);

/// Whether what was begun last is prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Nothing was begun.
    Nothing,
    Preparing,
    /// It can be written.
    Prepared,
}

/// A kind of work: what is done for the jobs of one kind (`kb.jobs.kind`).
///
/// The worker calls, again and again: [`Work::settle`], [`Work::ask_models`], [`Work::write`],
/// [`Work::collect`]; then, unless something is still being prepared, [`Work::take`] with claimed jobs if it
/// wants some, [`Work::begin`], and [`Work::write`], so that one group is prepared while another is written.
/// All of these begin and end transactions themselves. After an error that is not a conflict (a lock, a
/// deadlock, a serialization failure) the worker gives every job back and calls [`Work::clear`].
pub trait Work {
    /// Its name, which its jobs have as their kind. Only these jobs are claimed for it, and ended by it.
    fn kind(&self) -> &'static str;

    /// Makes jobs of what waits elsewhere, before jobs are claimed.
    fn take_up(&mut self) -> Result<()>;

    /// Whether something waits elsewhere of which there is no job yet. In a transaction.
    fn is_wanted(&self) -> Result<bool>;

    /// Whether every job that it took is begun.
    fn wants_jobs(&self) -> bool;

    /// Embedders of which enough waits here: no job of theirs is claimed.
    fn full_embedders(&self) -> Vec<String>;

    /// Knowledge bases of which enough waits here: no job of theirs is claimed.
    fn full_knowledge_bases(&self) -> Vec<i64> {
        Vec::new()
    }

    /// Takes jobs that were claimed.
    fn take(&mut self, jobs: Vec<Job>);

    /// Begins to prepare a group of the jobs that it took; false when there is none.
    fn begin(&mut self, events: &mut Vec<Event>) -> Result<bool>;

    /// Looks whether what was begun is prepared.
    fn collect(&mut self) -> Result<Progress>;

    /// Takes in what models were asked for while jobs were prepared; whether anything had come.
    fn settle(&mut self, events: &mut Vec<Event>) -> Result<bool>;

    /// Asks the models without whose answers jobs cannot be prepared; returns whether any was asked. Unless
    /// it `may_begin`, what is under way ends as soon as it can.
    fn ask_models(&mut self, may_begin: bool, pauses: &Pauses, events: &mut Vec<Event>) -> Result<bool>;

    /// Writes what is prepared, and reports what wants vectors now. A bad job costs no other.
    fn write(&mut self, events: &mut Vec<Event>) -> Result<()>;

    /// The jobs that are not written yet.
    fn jobs(&self) -> Vec<Job>;

    /// The knowledge bases whose jobs are about to be written, but for those that wait for models.
    fn coming(&self) -> HashSet<i64>;

    fn is_idle(&self) -> bool;

    fn is_preparing(&self) -> bool;

    /// Whether something is prepared and can be written.
    fn is_prepared(&mut self) -> bool;

    /// Gives up all jobs. What is being prepared cannot be stopped: its end is waited for.
    fn clear(&mut self);

    /// Locks those of these documents (by number and generation) that were not edited since they were
    /// claimed, and that nobody else has locked; which these are. In a transaction that has locked nothing of
    /// theirs.
    fn lock_current(&self, keys: &[(i64, i64)]) -> Result<HashSet<i64>>;

    /// Ends what has all its vectors, unless it was edited meanwhile. What an open transaction has locked,
    /// and the `blocked`, is released: it will be found done. Returned are the jobs that could not be
    /// released. In the transaction that wrote the vectors, if any were.
    fn finish(&self, done: &[&Written], blocked: &HashSet<i64>) -> Result<Vec<Job>>;

    /// Locks what a job is about; false where somebody has it locked. In the transaction of [`Work::fail`].
    fn lock(&self, job: &Job) -> Result<bool>;

    /// Records that a job, which is deleted by now, failed for good.
    fn fail(&self, job: &Job, text: &str, sqlstate: &str) -> Result<()>;
}

/// What makes documents of something else.
pub trait Feed {
    /// Makes jobs of what changed, before jobs are claimed.
    fn take_up(&mut self) -> Result<()>;

    /// Whether something changed of which there is no job yet. In a transaction.
    fn is_wanted(&self) -> Result<bool>;

    /// Makes the documents of those of these jobs that are its own. Returns the jobs that are to be
    /// processed, in their order; the others have ended, or wait. After a conflict, those that it has not
    /// reported are given back.
    fn refresh(&mut self, jobs: Vec<Job>, events: &mut Vec<Event>) -> Result<Vec<Job>>;
}
