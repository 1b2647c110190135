//! How a document's processing ends: ready, to be tried again, or failed.

use super::log::Log;
use super::open_documents::OpenDocument;
use super::pauses;
use super::under_way::Ended;
use crate::error::{Error, Result};
use crate::pg::{report, txn};
use crate::settings;
use crate::store::jobs::{self, Fault, Job};
use crate::store::{documents, runs};
use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

/// Pause before a document is tried again: doubled with each attempt, up to the last.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), pauses::LONGEST);

/// Pause after a fault that is not of the document: a full disk, say. It costs no attempt, so it cannot grow.
const UNRELATED: Duration = Duration::from_secs(10);

/// Pause before a document that an open transaction has locked is tried again.
pub const BUSY: Duration = Duration::from_secs(1);

/// How often the worker tries to release jobs that an open transaction has locked.
const RELEASE_EVERY: Duration = Duration::from_secs(1);

/// Ends jobs, and remembers those that cannot be ended now.
#[derive(Default)]
pub struct Outcomes {
    /// Jobs that an open transaction keeps from being released: their leases would run on for long.
    unreleased: Vec<Job>,
    tried: Option<Instant>,
    /// What was last logged of a failed document.
    logged: String,
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
        let left = unless_locked(txn::in_txn(|| jobs::release(jobs, delay, None, false)), jobs)?;
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
        let left = txn::in_txn(|| jobs::release(&jobs, Duration::ZERO, None, false));
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
        let hint = error.hint().map(|h| format!(" ({h})")).unwrap_or_default();
        let text = match error.detail() {
            Some(detail) => format!("{error}: {detail}{hint}"),
            None => format!("{error}{hint}"),
        };
        let left = txn::in_txn(|| self.record(job, error, &text));
        let left = unless_locked(left, std::slice::from_ref(job))?;
        self.release_later(left);
        Ok(())
    }

    /// Returned is the job, if it could not be released.
    fn record(&mut self, job: &Job, error: &Error, text: &str) -> Result<Vec<Job>> {
        let this = std::slice::from_ref(job);
        let fault = Fault { text, embedder: error.embedder() };
        if let Some(wait) = error.retry_after() {
            let delay = wait.clamp(RETRY.0, RETRY.1);
            return jobs::pause(this, delay, fault);
        }
        let again = job.attempts < settings::max_attempts() || !error.is_of_the_work();
        if error.is_transient() && again {
            let delay = match error.is_of_the_work() {
                _ if error.is_lock() => BUSY,
                true => RETRY.0.saturating_mul(1 << (job.attempts - 1).clamp(0, 16)).min(RETRY.1),
                false => UNRELATED,
            };
            return jobs::release(this, delay, Some(fault), error.is_of_the_work());
        }
        if let Error::Database { .. } = error {
            self.log_once(text);
        }
        if !documents::lock_by_key(job)? {
            // Somebody may be editing or deleting it. If not, it fails once more.
            return jobs::release(this, BUSY, Some(fault), false);
        }
        if !jobs::finish(this)?.is_empty() {
            documents::set_failed(job, text, error.sqlstate())?;
            if let Some(run_no) = job.run_no {
                runs::count(run_no, 0, 0, 1)?;
            }
        }
        Ok(Vec::new())
    }

    /// Operators, too, must learn what PostgreSQL says of a document that fails for good (a dropped table, say); once
    /// if thousands fail alike.
    fn log_once(&mut self, text: &str) {
        if self.logged != text {
            report::log(&format!("a document failed: {text}"));
            text.clone_into(&mut self.logged);
        }
    }
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
    let locked = documents::lock_current(&keys)?;
    let is_free = |id: i64| !locked.busy.contains(&id) && !blocked.contains(&id);
    let (free, busy): (Vec<_>, Vec<_>) = done.iter().partition(|ended| is_free(ended.document_id));
    let jobs_of = |ended: &[&Ended<OpenDocument>]| -> Vec<Job> {
        ended.iter().map(|ended| ended.document.job.clone()).collect()
    };
    let unreleased = match busy.is_empty() {
        true => Vec::new(),
        false => jobs::release(&jobs_of(&busy), BUSY, None, false)?,
    };
    let finished: HashSet<i64> = jobs::finish(&jobs_of(&free))?.into_iter().collect();
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
        documents::set_ready(&ids, settings)?;
    }
    for (run_no, (added, updated)) in by_run {
        runs::count(run_no, added, updated, 0)?;
    }
    Ok(unreleased)
}
