//! The leases of this worker's jobs: renewed, taken over from a dead worker, ended after a fault.

use super::outcome::Outcomes;
use crate::jobs::queue;
use crate::jobs::queue::Job;
use crate::pg::{report, txn};
use crate::settings;
use crate::worker::backoff::Backoff;
use kb_types::error::{Error, Result};
use std::time::{Duration, Instant};

pub struct Leases {
    /// The jobs over which the previous worker died.
    died_at: Vec<i64>,
    /// What the previous worker had leased was released.
    is_taken_over: bool,
    renewed: Instant,
}

impl Leases {
    pub fn new(died_at: Vec<i64>) -> Leases {
        Leases { died_at, is_taken_over: false, renewed: Instant::now() }
    }

    pub fn is_taken_over(&self) -> bool {
        self.is_taken_over
    }

    /// Releases what a dead worker had leased. The document that it prepared and the one that it wrote may have killed
    /// it: each has had an attempt, so that none kills workers for ever.
    pub fn take_over(&mut self, outcomes: &mut Outcomes) -> Result<()> {
        while let Some(job_no) = self.died_at.last() {
            if let Some(job) = txn::in_txn(|| queue::take_over(*job_no))? {
                report::log(&format!(
                    "the worker before this one died over document \"{}\"",
                    job.external_id
                ));
                outcomes.fail(&job, &Error::Died { external_id: job.external_id.clone() })?;
            }
            self.died_at.pop();
        }
        outcomes.release_later(txn::in_txn(|| queue::release_all(Duration::ZERO, None, false))?);
        self.is_taken_over = true;
        Ok(())
    }

    /// Renews the leases of the jobs at work, if it is time.
    pub fn renew(&mut self, at_work: impl FnOnce() -> Vec<Job>) -> Result<()> {
        let lease = settings::lease_duration();
        if self.renewed.elapsed() < lease / 3 {
            return Ok(());
        }
        self.renewed = Instant::now();
        let jobs = at_work();
        txn::in_txn(|| queue::extend(&jobs, lease))
    }
}

/// After a fault of the gateway, or of the database under several documents, gives back all jobs: what had been done of
/// them is found done next time. What is no document's fault costs no attempt.
pub fn give_back_all(fault: Error, backoff: &mut Backoff, outcomes: &mut Outcomes) {
    let pause = backoff.count_fault();
    let count = fault.is_of_the_work();
    // Every tenant whose document was under way sees this text: the fault itself may be about a document of another.
    let text = "the worker met a fault and starts over; see the server log";
    let given_back = txn::in_txn(|| {
        let left = queue::release_all(pause, Some(text), count)?;
        let exhausted = if count { queue::exhausted(settings::max_attempts())? } else { Vec::new() };
        Ok((left, exhausted))
    })
    .and_then(|(left, exhausted)| {
        outcomes.release_later(left);
        let error = Error::Database { sqlstate: fault.sqlstate().to_string(), message: text.to_string() };
        exhausted.iter().try_for_each(|job| outcomes.fail(job, &error))
    });
    match given_back {
        Ok(()) => backoff.wait_shortly(Instant::now()),
        // A full disk takes not even that.
        Err(problem) => {
            report::log(&format!("worker cannot give jobs back: {problem}"));
            backoff.postpone(fault, pause, Instant::now());
        }
    }
}
