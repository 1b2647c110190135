//! What parts of the worker and kinds of work report. The worker applies it: no part changes another. Pure.

use super::{Group, Target};
use crate::jobs::queue::Job;
use kb_types::error::Error;
use std::collections::HashSet;
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

/// Those of some jobs that none of these events ends or gives back.
pub fn without_reported(mut jobs: Vec<Job>, events: &[Event]) -> Vec<Job> {
    let mut reported = HashSet::new();
    for event in events {
        match event {
            Event::Failed { job, .. } => drop(reported.insert(job.job_no)),
            Event::GivenBack { jobs, .. } | Event::Unreleased(jobs) => {
                reported.extend(jobs.iter().map(|job| job.job_no));
            }
            _ => {}
        }
    }
    jobs.retain(|job| !reported.contains(&job.job_no));
    jobs
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

#[cfg(test)]
mod tests {
    use super::*;
    use kb_types::row_states::Priority;

    fn job(job_no: i64) -> Job {
        Job {
            kind: "document".into(),
            kb_no: 1,
            tenant_id: "t".into(),
            external_id: job_no.to_string(),
            generation: job_no,
            attempts: 1,
            run_no: None,
            priority: Priority::Live,
            job_no,
            source_no: None,
            adopted: None,
        }
    }

    #[test]
    fn a_job_that_has_failed_or_was_given_back_is_not_given_back_again() {
        let events = [
            Event::Failed { job: job(2), error: Error::Internal("a bad row".into()), embedder: None },
            Event::GivenBack { jobs: vec![job(4), job(5)], delay: Duration::ZERO },
            Event::Unreleased(vec![job(7)]),
        ];
        let left = without_reported((1..=8).map(job).collect(), &events);
        assert_eq!(left.iter().map(|job| job.job_no).collect::<Vec<_>>(), [1, 3, 6, 8]);
    }
}
