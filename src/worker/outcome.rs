//! How a document's processing ends: ready, to be tried again, or failed.

use super::flights::Open;
use crate::error::{Error, Result};
use crate::pg::{report, txn};
use crate::settings;
use crate::store::jobs::{self, Job};
use crate::store::{documents, runs};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// Pause before a document is tried again: doubled with each attempt, up to the last.
pub(super) const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// Pause after a fault that is not of the document: a full disk, say. It costs no attempt, so it cannot grow.
const UNRELATED: Duration = Duration::from_secs(10);

/// Pause before a document is looked at again that a transaction which is not over has.
pub(super) const BUSY: Duration = Duration::from_secs(1);

thread_local! {
    /// Jobs that could not be given back: their leases would run on for long.
    static HELD_UP: RefCell<Vec<Job>> = const { RefCell::new(Vec::new()) };
}

/// Gives jobs back in a transaction of its own; no attempt was made.
pub(super) fn give_back(jobs: &[Job], delay: Duration) -> Result<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    hold_up(unless_locked(txn::in_txn(|| jobs::release(jobs, delay, None, false)), jobs)?);
    Ok(())
}

/// Where somebody has locked a table, all of these jobs are still to be given back.
fn unless_locked(left: Result<Vec<Job>>, jobs: &[Job]) -> Result<Vec<Job>> {
    match left {
        Err(error) if error.is_lock() => Ok(jobs.to_vec()),
        left => left,
    }
}

/// Remembers jobs that a transaction which is not over keeps from being given back.
pub(super) fn hold_up(jobs: Vec<Job>) {
    HELD_UP.with_borrow_mut(|held_up| held_up.extend(jobs));
}

/// Tries again to give back what could not be, but for what is worked on again by now.
pub(super) fn give_back_held_up(at_work: &[Job]) -> Result<()> {
    let mut jobs = HELD_UP.take();
    if jobs.is_empty() {
        return Ok(());
    }
    let at_work: HashSet<i64> = at_work.iter().map(|job| job.job_no).collect();
    jobs.retain(|job| !at_work.contains(&job.job_no));
    let left = txn::in_txn(|| jobs::release(&jobs, Duration::ZERO, None, false));
    hold_up(left.unwrap_or(jobs));
    Ok(())
}

/// Ends documents that wait for nothing more, in a transaction of its own; see [`finish`].
pub(super) fn finish_all(done: &[(i64, Open)]) -> Result<()> {
    let result = txn::in_txn(|| finish(done, &HashSet::new()));
    match result {
        Err(error) if error.is_lock() => {
            hold_up(done.iter().map(|(_, open)| open.job.clone()).collect());
            Ok(())
        }
        result => result,
    }
}

/// Ends the jobs of documents that have all their vectors, unless they were edited meanwhile. Those that somebody has in
/// an open transaction, and the `blocked`, are given back: they will be found done.
pub(super) fn finish(done: &[(i64, Open)], blocked: &HashSet<i64>) -> Result<()> {
    if done.is_empty() {
        return Ok(());
    }
    let keys: Vec<(i64, i64)> = done.iter().map(|(id, open)| (*id, open.job.generation)).collect();
    let locked = documents::lock_current(&keys)?;
    let is_free = |id: &i64| !locked.busy.contains(id) && !blocked.contains(id);
    let (free, busy): (Vec<_>, Vec<_>) = done.iter().partition(|(id, _)| is_free(id));
    let busy: Vec<Job> = busy.into_iter().map(|(_, open)| open.job.clone()).collect();
    if !busy.is_empty() {
        hold_up(jobs::release(&busy, BUSY, None, false)?);
    }
    let jobs: Vec<Job> = free.iter().map(|(_, open)| open.job.clone()).collect();
    let finished: HashSet<(i64, String)> = jobs::finish(&jobs)?.into_iter().collect();
    let mut by_settings: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    let mut by_run: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    for (id, open) in free {
        if !finished.contains(&(open.job.kb_no, open.job.external_id.clone())) {
            continue;
        }
        by_settings.entry(&open.settings).or_default().push(*id);
        if let Some(run_no) = open.job.run_no {
            let counts = by_run.entry(run_no).or_default();
            if open.is_new { counts.0 += 1 } else { counts.1 += 1 }
        }
    }
    for (settings, ids) in by_settings {
        documents::set_ready(&ids, settings)?;
    }
    for (run_no, (added, updated)) in by_run {
        runs::count(run_no, added, updated, 0)?;
    }
    Ok(())
}

/// Records a failure in a transaction of its own: to be tried again, or, if trying cannot help or was
/// done often enough, for kb.failures.
pub(super) fn fail(job: &Job, error: &Error) -> Result<()> {
    let hint = error.hint().map(|h| format!(" ({h})")).unwrap_or_default();
    let text = match error.detail() {
        Some(detail) => format!("{error}: {detail}{hint}"),
        None => format!("{error}{hint}"),
    };
    let left = txn::in_txn(|| {
        let this = std::slice::from_ref(job);
        if let Some(wait) = error.retry_after() {
            let delay = wait.clamp(RETRY.0, RETRY.1);
            return jobs::pause(this, delay, &text);
        }
        let again = job.attempts < settings::max_attempts() || !error.is_of_the_work();
        if error.is_transient() && again {
            let delay = match error.is_of_the_work() {
                _ if error.is_lock() => BUSY,
                true => RETRY.0.saturating_mul(1 << (job.attempts - 1).clamp(0, 16)).min(RETRY.1),
                false => UNRELATED,
            };
            return jobs::release(this, delay, Some(&text), error.is_of_the_work());
        }
        if let Error::Database { .. } = error {
            log_once(&text);
        }
        if !documents::lock_by_key(job.kb_no, &job.external_id)? {
            // It may be edited, or deleted, or neither: then it will fail once more.
            return jobs::release(this, BUSY, Some(&text), false);
        }
        if !jobs::finish(this)?.is_empty() {
            documents::set_failed(job.kb_no, &job.external_id, &text, error.sqlstate(), job.attempts)?;
            if let Some(run_no) = job.run_no {
                runs::count(run_no, 0, 0, 1)?;
            }
        }
        Ok(Vec::new())
    });
    hold_up(unless_locked(left, std::slice::from_ref(job))?);
    Ok(())
}

/// What PostgreSQL says of a document that fails for good (a dropped table, say) is the operator's business, too; of
/// thousands that fail alike, once.
fn log_once(text: &str) {
    thread_local! {
        static LAST: RefCell<String> = const { RefCell::new(String::new()) };
    }
    LAST.with_borrow_mut(|last| {
        if last != text {
            report::log(&format!("a document failed: {text}"));
            text.clone_into(last);
        }
    });
}
