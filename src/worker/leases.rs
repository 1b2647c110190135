//! The jobs that this worker has: leases renewed, taken over from a dead worker, given back after a fault.

use super::outcome::{fail, hold_up};
use super::runner::{FAULT_PAUSE, Runner};
use crate::error::{Error, Result};
use crate::pg::{report, txn};
use crate::settings;
use crate::store::jobs::{self, Job};
use std::time::{Duration, Instant};

impl Runner {
    /// Gives back what a dead worker had leased. The document over which it died (of the one that it prepared and the
    /// one that it wrote, either) may have killed it: it has had an attempt, and so does not kill workers for ever.
    pub(super) fn take_over(&mut self) -> Result<()> {
        while let Some(job_no) = self.died_at.last() {
            if let Some(job) = txn::in_txn(|| jobs::take_over(*job_no))? {
                report::log(&format!(
                    "the worker before this one died over document \"{}\"",
                    job.external_id
                ));
                fail(&job, &Error::Died { external_id: job.external_id.clone() })?;
            }
            self.died_at.pop();
        }
        hold_up(txn::in_txn(|| jobs::release_all(Duration::ZERO, None, false))?);
        Ok(())
    }

    /// The gateway or the database failed under several documents: all that was under way is given back,
    /// and what had been done of it is found done next time. What no document can help costs no attempt. Vectors that
    /// could not be written are kept.
    pub(super) fn start_over(&mut self, error: Error) {
        self.connection = None;
        self.asked = false;
        self.flights.clear();
        self.claimed.clear();
        if let Some(preparing) = &mut self.preparing {
            preparing.jobs.clear();
        }
        self.give_back(error);
    }

    /// The pause after one more fault in a row.
    pub(super) fn next_pause(&mut self) -> Duration {
        let pause = FAULT_PAUSE.0.saturating_mul(1 << self.faults.min(10)).min(FAULT_PAUSE.1);
        self.faults += 1;
        pause
    }

    pub(super) fn give_back(&mut self, error: Error) {
        let pause = self.next_pause();
        let count = error.is_of_the_work();
        // Every tenant whose document was under way sees it: not what it was, which is in the log.
        let text = "the worker met a fault and starts over; see the server log";
        let given_back = txn::in_txn(|| {
            hold_up(jobs::release_all(pause, Some(text), count)?);
            if count { jobs::exhausted(settings::max_attempts()) } else { Ok(Vec::new()) }
        })
        .and_then(|jobs| jobs.iter().try_for_each(|job| fail(job, &error)));
        let wait = match given_back {
            Ok(()) => FAULT_PAUSE.0,
            // A full disk takes not even that.
            Err(problem) => {
                report::log(&format!("worker cannot give jobs back: {problem}"));
                self.owed = Some(error);
                pause
            }
        };
        self.resume_at = Instant::now() + wait;
    }

    pub(super) fn renew_leases(&mut self) -> Result<()> {
        let lease = settings::lease_duration();
        if self.renewed.elapsed() < lease / 3 {
            return Ok(());
        }
        self.renewed = Instant::now();
        let jobs = self.jobs_at_work();
        txn::in_txn(|| jobs::extend(&jobs, lease))
    }

    pub(super) fn jobs_at_work(&self) -> Vec<Job> {
        let mut jobs = self.flights.jobs();
        jobs.extend(self.claimed.iter().cloned());
        jobs.extend(self.preparing.iter().flat_map(|preparing| preparing.jobs.iter().cloned()));
        jobs
    }
}
