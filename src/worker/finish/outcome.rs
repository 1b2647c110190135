//! How a document's processing ends: ready, to be tried again, or failed.

use super::open_documents::OpenDocument;
use super::under_way::Ended;
use crate::builds::runs;
use crate::documents::stored;
use crate::jobs::queue;
use crate::jobs::queue::{Fault, Job};
use crate::pg::{report, txn};
use crate::settings;
use crate::worker::embed::pauses;
use crate::worker::log::Log;
use kb_types::error::{Error, Result};
use kb_types::sizes;
use kb_types::tally::{EVERY, Tally};
use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

/// Pause before a document is tried again: doubled with each attempt, up to the last.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), pauses::LONGEST);

/// Pause after a fault that is not of the document: a full disk, say. It costs no attempt, so it cannot grow.
const UNRELATED: Duration = Duration::from_secs(10);

/// Pause before a document that an open transaction has locked is tried again.
pub const BUSY: Duration = Duration::from_secs(1);

/// How often the server's log is told of failed documents.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// How often the worker tries to release jobs that an open transaction has locked.
const RELEASE_EVERY: Duration = Duration::from_secs(1);

/// Ends jobs, and remembers those that cannot be ended now.
#[derive(Default)]
pub struct Outcomes {
    /// Jobs that an open transaction keeps from being released: their leases would run on for long.
    unreleased: Vec<Job>,
    tried: Option<Instant>,
    /// Documents that failed for good: why, of which embedder and tenant.
    failed: Tally<(String, Option<String>, String)>,
    reported: Option<Instant>,
    log: Log,
}

impl Outcomes {
    /// Logs what made the worker do something again in another way.
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

    /// Tries again, now and then, to release those jobs, except the ones that are worked on again by now.
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

    /// Ends documents that wait for nothing more, in a transaction of its own; see [`finish`].
    pub fn finish(&mut self, done: &[Ended<OpenDocument>]) -> Result<()> {
        let left = match txn::in_txn(|| finish(done, &HashSet::new())) {
            Err(error) if error.is_conflict() => {
                done.iter().map(|ended| ended.document.job.clone()).collect()
            }
            result => result?,
        };
        self.release_later(left);
        Ok(())
    }

    /// Records a failure in a transaction of its own: to be tried again, or, if trying cannot help or was
    /// done often enough, for kb.failures.
    pub fn fail(&mut self, job: &Job, error: &Error) -> Result<()> {
        self.fail_at(job, error, error.embedder())
    }

    /// The same, of a document that waited for vectors of this embedder.
    pub fn fail_at(&mut self, job: &Job, error: &Error, embedder: Option<&str>) -> Result<()> {
        let hint = error.hint().map(|h| format!(" ({h})")).unwrap_or_default();
        let text = match error.detail() {
            Some(detail) => format!("{error}: {detail}{hint}"),
            None => format!("{error}{hint}"),
        };
        let text = sizes::cut(&text, sizes::MESSAGE);
        let recorded = txn::in_txn(|| record(job, error, text));
        let (left, has_failed) = match recorded {
            Ok(Recorded::Failed) => (Vec::new(), true),
            Ok(Recorded::Again(left)) => (left, false),
            Err(error) => (unless_locked(Err(error), std::slice::from_ref(job))?, false),
        };
        if has_failed {
            // Operators, too, must learn of it: of a dropped table, say.
            let why = format!("{} (SQLSTATE {}", kind(error), error.sqlstate());
            self.failed.count((why, embedder.map(str::to_string), job.tenant_id.clone()));
        }
        self.release_later(left);
        Ok(())
    }

    /// Tells the server's log of documents that failed for good; `all`: also of those that it would be told of later.
    pub fn report_failed(&mut self, all: bool) {
        if !all && self.reported.is_some_and(|at| at.elapsed() < REPORT_EVERY) {
            return;
        }
        self.reported = Some(Instant::now());
        let until = Instant::now() + if all { EVERY } else { Duration::ZERO };
        for ((why, embedder, tenant), number) in self.failed.due(until) {
            let embedder = embedder.map(|embedder| format!(", embedder {embedder:?}")).unwrap_or_default();
            report::log(&format!("{number} documents failed for good: {why}{embedder}, tenant {tenant:?})"));
        }
    }
}

/// What kind of error of a document it is, for the server's log: nothing of the document, and nothing that a provider said,
/// is in it.
fn kind(error: &Error) -> &str {
    match error {
        Error::Provider { passing: false, .. } => "its embedder's provider refused it",
        Error::Provider { .. } => "its embedder's provider failed each time",
        Error::Embedding { .. } => "its embedder made no vector of a text",
        Error::InputTooLong { .. } => "a text is longer than its embedder's model reads",
        Error::Service { .. } => "a reranker or chat model failed",
        Error::DocumentTooLarge { .. } | Error::TooLarge { .. } | Error::Limit { .. } => "it is too large",
        Error::Quota { .. } => "it is over its tenant's quota",
        Error::Document { .. } => "it cannot be read",
        Error::ContentType { .. } => "its content type is not supported",
        Error::Died { .. } => "the worker died of it",
        Error::ModelFiles { .. } => "the files of its embedder's model cannot be used",
        // Data exceptions and violated constraints may repeat values.
        Error::Database { sqlstate, .. } if sqlstate.starts_with("22") || sqlstate.starts_with("23") => {
            "PostgreSQL refused a value"
        }
        Error::Database { message, .. } => message,
        _ => "it cannot be worked on",
    }
}

/// What became of a document that something went wrong with.
enum Recorded {
    /// It is in kb.failures.
    Failed,
    /// It is tried again. The job, if it could not be released.
    Again(Vec<Job>),
}

fn record(job: &Job, error: &Error, text: &str) -> Result<Recorded> {
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
    if !stored::lock_by_key(job)? {
        // Somebody may be editing or deleting it. If not, it fails once more.
        return queue::release(this, BUSY, Some(fault), false).map(Recorded::Again);
    }
    if queue::finish(this)?.is_empty() {
        return Ok(Recorded::Again(Vec::new()));
    }
    stored::set_failed(job, text, error.sqlstate())?;
    if let Some(run_no) = job.run_no {
        runs::count(run_no, 0, 0, 1)?;
    }
    Ok(Recorded::Failed)
}

/// Where somebody has locked a table, or rows in another order, all of these jobs are still to be released.
fn unless_locked(left: Result<Vec<Job>>, jobs: &[Job]) -> Result<Vec<Job>> {
    match left {
        Err(error) if error.is_conflict() => Ok(jobs.to_vec()),
        left => left,
    }
}

/// Ends the jobs of documents that have all their vectors, unless they were edited meanwhile. Those that an open
/// transaction has locked, and the `blocked`, are released: they will be found done. Returned are the jobs that could
/// not be released.
pub fn finish(done: &[Ended<OpenDocument>], blocked: &HashSet<i64>) -> Result<Vec<Job>> {
    if done.is_empty() {
        return Ok(Vec::new());
    }
    let keys: Vec<(i64, i64)> =
        done.iter().map(|ended| (ended.document_id, ended.document.job.generation)).collect();
    let locked = stored::lock_current(&keys)?;
    let is_free = |id: i64| !locked.busy.contains(&id) && !blocked.contains(&id);
    let (free, busy): (Vec<_>, Vec<_>) = done.iter().partition(|ended| is_free(ended.document_id));
    let jobs_of = |ended: &[&Ended<OpenDocument>]| -> Vec<Job> {
        ended.iter().map(|ended| ended.document.job.clone()).collect()
    };
    let unreleased = match busy.is_empty() {
        true => Vec::new(),
        false => queue::release(&jobs_of(&busy), BUSY, None, false)?,
    };
    let finished: HashSet<i64> = queue::finish(&jobs_of(&free))?.into_iter().collect();
    let mut by_settings: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    let mut by_run: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    for Ended { document_id, document, .. } in free {
        if !finished.contains(&document.job.job_no) {
            continue;
        }
        by_settings.entry(&document.settings).or_default().push(*document_id);
        if let Some(run_no) = document.job.run_no {
            let counts = by_run.entry(run_no).or_default();
            if document.is_new { counts.0 += 1 } else { counts.1 += 1 }
        }
    }
    for (settings, ids) in by_settings {
        stored::set_ready(&ids, settings)?;
    }
    for (run_no, (added, updated)) in by_run {
        runs::count(run_no, added, updated, 0)?;
    }
    Ok(unreleased)
}
