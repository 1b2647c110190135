//! How a document's processing ends: ready, to be tried again, or failed.

use crate::jobs::queue;
use crate::jobs::queue::{Fault, Job};
use crate::pg::{report, txn};
use crate::settings;
use crate::upkeep::Log;
use crate::work::{BUSY, LONGEST, Work, Written};
use crate::worker::works::Works;
use kb_types::error::{Error, Result};
use kb_types::sizes;
use kb_types::tally::{EVERY, Tally};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// The pause before a document is tried again doubles with each attempt, from the first to the second of
/// these.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), LONGEST);

/// The pause after a fault that the document did not cause, such as a full disk. It costs no attempt, so the
/// pause cannot grow with the attempts.
const UNRELATED: Duration = Duration::from_secs(10);

/// How often failed documents are reported in the server's log.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// How often the worker tries to release jobs that an open transaction has locked.
const RELEASE_EVERY: Duration = Duration::from_secs(1);

/// Ends jobs, and remembers those that cannot be ended now.
#[derive(Default)]
pub struct Outcomes {
    /// Jobs that could not be released because an open transaction has locked them. Their leases would last
    /// for `kb.lease_duration` otherwise.
    unreleased: Vec<Job>,
    tried: Option<Instant>,
    /// How many documents failed for good, by reason, embedder and tenant.
    failed: Tally<(String, Option<String>, String)>,
    reported: Option<Instant>,
    log: Log,
}

impl Outcomes {
    /// Logs the error after which the worker does something again in another way.
    pub fn log(&mut self, what: &str, error: &Error) {
        self.log.write(what, error);
    }

    /// Gives jobs back in a transaction of its own; no attempt was made.
    pub fn give_back(&mut self, jobs: &[Job], delay: Duration) -> Result<()> {
        if jobs.is_empty() {
            return Ok(());
        }
        let left = unless_locked(txn::in_txn(|| queue::release(jobs, delay, None, false)), jobs)?;
        self.release_later(left);
        Ok(())
    }

    /// Remembers jobs that an open transaction keeps from being released.
    pub fn release_later(&mut self, jobs: Vec<Job>) {
        self.unreleased.extend(jobs);
    }

    /// Tries once a second to release those jobs, except the ones that the worker has claimed again.
    pub fn release_now_and_then(&mut self, at_work: impl FnOnce() -> Vec<Job>) {
        if self.unreleased.is_empty() || self.tried.is_some_and(|at| at.elapsed() <= RELEASE_EVERY) {
            return;
        }
        self.tried = Some(Instant::now());
        let mut jobs = std::mem::take(&mut self.unreleased);
        let at_work: HashSet<i64> = at_work().iter().map(|job| job.job_no).collect();
        jobs.retain(|job| !at_work.contains(&job.job_no));
        let left = txn::in_txn(|| queue::release(&jobs, Duration::ZERO, None, false));
        self.unreleased = left.unwrap_or(jobs);
    }

    /// Ends documents that wait for nothing more, in a transaction of its own; see [`Work::finish`].
    pub fn finish(&mut self, works: &Works, done: &[&Written]) -> Result<()> {
        let left = match txn::in_txn(|| works.finish(done, &HashSet::new())) {
            Err(error) if error.is_conflict() => done.iter().map(|document| document.job.clone()).collect(),
            result => result?,
        };
        self.release_later(left);
        Ok(())
    }

    /// Records a failure in a transaction of its own: the job is tried again, or, if that cannot help or was
    /// done often enough, its document is listed in kb.failures. The server's log names the embedder.
    pub fn fail(&mut self, work: &dyn Work, job: &Job, error: &Error, embedder: Option<&str>) -> Result<()> {
        let hint = error.hint().map(|h| format!(" ({h})")).unwrap_or_default();
        let text = match error.detail() {
            Some(detail) => format!("{error}: {detail}{hint}"),
            None => format!("{error}{hint}"),
        };
        let text = sizes::cut(&text, sizes::MESSAGE);
        let recorded = txn::in_txn(|| record(work, job, error, text));
        let (left, has_failed) = match recorded {
            Ok(Recorded::Failed) => (Vec::new(), true),
            Ok(Recorded::Again(left)) => (left, false),
            Err(error) => (unless_locked(Err(error), std::slice::from_ref(job))?, false),
        };
        if has_failed {
            // The operator has to learn of it, too: a dropped table, for example.
            let why = format!("{} (SQLSTATE {}", kind(error), error.sqlstate());
            self.failed.count((why, embedder.map(str::to_string), job.tenant_id.clone()));
        }
        self.release_later(left);
        Ok(())
    }

    /// Reports in the server's log how many documents failed for good; `all` includes those that are not yet
    /// due to be reported.
    pub fn report_failed(&mut self, all: bool) {
        if !all && self.reported.is_some_and(|at| at.elapsed() < REPORT_EVERY) {
            return;
        }
        self.reported = Some(Instant::now());
        let until = Instant::now() + if all { EVERY } else { Duration::ZERO };
        for ((why, embedder, tenant), number) in self.failed.due(until) {
            let embedder = embedder.map(|embedder| format!(", embedder {embedder:?}")).unwrap_or_default();
            report::log(&format!(
                "{number} documents failed permanently: {why}{embedder}, tenant {tenant:?})"
            ));
        }
    }
}

/// The kind of a document's error, for the server's log. It repeats nothing of the document and nothing that
/// a provider said.
fn kind(error: &Error) -> &str {
    match error {
        Error::Provider { passing: false, .. } => "its embedder's provider refused it",
        Error::Provider { .. } => "its embedder's provider failed each time",
        Error::Embedding { .. } => "its embedder made no vector of a text",
        Error::InputTooLong { .. } => "a text is longer than its embedder's model reads",
        Error::Service { .. } => "a reranker, chat model or extractor failed",
        Error::DocumentTooLarge { .. } | Error::TooLarge { .. } | Error::Limit { .. } => "it is too large",
        Error::Quota { .. } => "it is over its tenant's quota",
        Error::Document { .. } => "it cannot be read",
        Error::ContentType { .. } => "its content type is not supported",
        Error::Died { .. } => "the worker died while processing it",
        Error::ModelFiles { .. } => "the files of its embedder's model cannot be used",
        // Data exceptions and violated constraints may repeat values.
        Error::Database { sqlstate, .. } if sqlstate.starts_with("22") || sqlstate.starts_with("23") => {
            "PostgreSQL refused a value"
        }
        Error::Database { message, .. } => message,
        _ => "it cannot be processed",
    }
}

/// What became of a job after an error.
enum Recorded {
    /// Its document is listed in kb.failures.
    Failed,
    /// It is tried again. Holds the job if it could not be released.
    Again(Vec<Job>),
}

fn record(work: &dyn Work, job: &Job, error: &Error, text: &str) -> Result<Recorded> {
    let this = std::slice::from_ref(job);
    let fault = Fault { text, embedder: error.embedder() };
    if let Some(wait) = error.retry_after() {
        let delay = wait.clamp(RETRY.0, RETRY.1);
        return queue::pause(this, delay, fault).map(Recorded::Again);
    }
    let again = job.attempts < settings::max_attempts() || !error.is_of_the_work();
    if error.is_transient() && again {
        let delay = match error.is_of_the_work() {
            _ if error.is_lock() => BUSY,
            true => RETRY.0.saturating_mul(1 << (job.attempts - 1).clamp(0, 16)).min(RETRY.1),
            false => UNRELATED,
        };
        return queue::release(this, delay, Some(fault), error.is_of_the_work()).map(Recorded::Again);
    }
    if !work.lock(job)? {
        // Somebody may be editing or deleting it. If not, it fails once more.
        return queue::release(this, BUSY, Some(fault), false).map(Recorded::Again);
    }
    if queue::finish(this)?.is_empty() {
        return Ok(Recorded::Again(Vec::new()));
    }
    work.fail(job, text, error.sqlstate())?;
    Ok(Recorded::Failed)
}

/// After a conflict (a locked table, a deadlock) none of these jobs is released yet.
fn unless_locked(left: Result<Vec<Job>>, jobs: &[Job]) -> Result<Vec<Job>> {
    match left {
        Err(error) if error.is_conflict() => Ok(jobs.to_vec()),
        left => left,
    }
}
