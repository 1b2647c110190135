//! What parts of the worker and kinds of work report. The worker applies it: no part changes another.

use super::{Group, Target};
use crate::jobs::queue::Job;
use kb_types::error::Error;
use std::sync::Arc;
use std::time::Duration;

pub enum Event {
    /// Chunks of documents are written. These are done when they have all their vectors; the groups say which
    /// of their chunks may have none.
    Written { documents: Vec<Written>, groups: Vec<Group> },
    /// Documents that wait for nothing more.
    Done(Vec<Written>),
    /// Something went wrong with a job, which is tried again or listed. The embedder is the one that the
    /// server's log names.
    Failed { job: Job, error: Error, embedder: Option<String> },
    /// Jobs go back to the queue; no attempt was made.
    GivenBack { jobs: Vec<Job>, delay: Duration },
    /// Jobs that an open transaction keeps from being released.
    Unreleased(Vec<Job>),
    /// The embedder of a build could not be asked: it is paused, if the error says for how long.
    Refused { target: Arc<Target>, error: Error },
    /// A build gets this number of vectors, so it may need an index.
    Grown { target: Arc<Target>, vectors: usize },
}

impl Event {
    /// A job that failed by itself.
    pub fn failed(job: Job, error: Error) -> Event {
        let embedder = error.embedder().map(str::to_string);
        Event::Failed { job, error, embedder }
    }
}

/// A document whose chunks are written.
pub struct Written {
    pub document_id: i64,
    pub job: Job,
    /// Settings of the last build that it is in.
    pub settings: String,
    /// It never had chunks before.
    pub is_new: bool,
    /// It is being put into the next build, too.
    pub in_next: bool,
    /// Embedder of the last of its builds, and whether that is a remote one.
    pub embedder: String,
    pub is_remote: bool,
}
