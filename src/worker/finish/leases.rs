//! The leases of this worker's jobs: renewed, taken over from a dead worker, ended after a fault.

use crate::jobs::queue;
use crate::pg::{report, txn};
use crate::settings;
use crate::work::Event;
use crate::worker::context::Worker;
use kb_types::error::{Error, Result};
use std::time::{Duration, Instant};

pub struct Leases {
    /// The jobs over which the previous worker died.
    died_at: Vec<i64>,
    /// Whether the leases of the previous worker have been released.
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
}

impl Worker {
    /// Releases the leases of a dead worker. The document that it was preparing or the one that it was
    /// writing may have killed it: each has used an attempt, so no document can kill workers for ever.
    pub fn take_over_leases(&mut self) -> Result<()> {
        while let Some(job_no) = self.leases.died_at.last().copied() {
            if let Some(job) = txn::in_txn(|| queue::take_over(job_no))? {
                report::log(&format!(
                    "the previous worker died while processing document \"{}\"",
                    job.external_id
                ));
                let error = Error::Died { external_id: job.external_id.clone() };
                self.apply_all([Event::failed(job, error)])?;
            }
            self.leases.died_at.pop();
        }
        self.outcomes.release_later(txn::in_txn(|| queue::release_all(Duration::ZERO, None, false))?);
        self.leases.is_taken_over = true;
        Ok(())
    }

    /// Renews the leases of the jobs at work, if it is time.
    pub fn renew_leases(&mut self) -> Result<()> {
        let lease = settings::lease_duration();
        if self.leases.renewed.elapsed() < lease / 3 {
            return Ok(());
        }
        self.leases.renewed = Instant::now();
        let jobs = self.jobs();
        txn::in_txn(|| queue::extend(&jobs, lease))
    }

    /// Gives back all jobs after a fault of the gateway, or of the database while it worked on several
    /// documents. What was done already is found done next time. A fault that no document caused costs no
    /// attempt.
    pub fn give_back_all(&mut self, fault: Error) {
        let pause = self.backoff.count_fault();
        let count = fault.is_of_the_work();
        // Every tenant with a document under way sees this text. The fault itself may name a document of
        // another tenant.
        let text = "the worker encountered an error and starts over; see the server log";
        let given_back = txn::in_txn(|| {
            let left = queue::release_all(pause, Some(text), count)?;
            let exhausted = if count { queue::exhausted(settings::max_attempts())? } else { Vec::new() };
            Ok((left, exhausted))
        })
        .and_then(|(left, exhausted)| {
            self.outcomes.release_later(left);
            let error = Error::Database {
                sqlstate: fault.sqlstate().to_string(),
                message: text.to_string(),
                has_values: true,
            };
            exhausted.into_iter().try_for_each(|job| self.apply_all([Event::failed(job, error.clone())]))
        });
        match given_back {
            Ok(()) => self.backoff.wait_shortly(Instant::now()),
            // On a full disk even this fails.
            Err(problem) => {
                report::log(&format!("worker cannot return jobs to the queue: {problem}"));
                self.backoff.postpone(fault, pause, Instant::now());
            }
        }
    }
}
