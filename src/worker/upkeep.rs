//! Runs the upkeeps: every two seconds while documents are under way, and in each round of an idle worker.

use super::context::Worker;
use crate::jobs::queue;
use crate::pg::{latch, txn};
use crate::upkeep::Upkeep;
use kb_types::error::Result;
use std::time::{Duration, Instant};

/// How often that is done while documents are under way.
const EVERY: Duration = Duration::from_secs(2);

impl Worker {
    pub fn begin_upkeeps(&mut self) {
        self.upkeeps.all().iter_mut().for_each(|upkeep| upkeep.begin(&mut self.log));
    }

    pub fn end_upkeeps(&mut self) {
        self.upkeeps.all().iter_mut().for_each(|upkeep| upkeep.end(&mut self.log));
    }

    /// A knowledge base whose documents are all done does not wait for those of others.
    pub fn keep_up_now_and_then(&mut self) {
        if self.kept_up.elapsed() > EVERY {
            self.keep_up();
        }
    }

    /// Does all of it; true when nothing is left to wait for.
    pub fn keep_up(&mut self) -> bool {
        self.kept_up = Instant::now();
        match self.run_all() {
            Ok(nothing_left) => nothing_left,
            Err(error) => {
                self.log.write("worker housekeeping", &error);
                if !error.is_lock() {
                    latch::wait(latch::LONGEST);
                }
                false
            }
        }
    }

    fn run_all(&mut self) -> Result<bool> {
        for upkeep in self.upkeeps.all() {
            upkeep.run(&mut self.log)?;
        }
        // Jobs first: then the upkeeps are not asked, whose tables somebody may have locked.
        txn::in_txn(|| {
            let has_jobs = queue::any()? || self.works.is_wanted()?;
            Ok(!has_jobs && all(&self.upkeeps.all(), |upkeep| upkeep.is_done())?)
        })
    }

    /// Whether there is something to do of which this worker, which is leaving, has not seen all. In a
    /// transaction.
    pub fn has_work(&mut self) -> Result<bool> {
        let has_jobs = queue::any()? || self.works.is_wanted()?;
        Ok(has_jobs || !all(&self.upkeeps.all(), |upkeep| Ok(!upkeep.is_wanted()?))?)
    }

    /// Whether an upkeep did something after which more is likely to come.
    pub fn has_kept_up(&mut self) -> bool {
        let mut moved = false;
        for upkeep in self.upkeeps.all() {
            moved |= upkeep.take_moved();
        }
        moved
    }
}

fn all(upkeeps: &[&mut dyn Upkeep], is: impl Fn(&dyn Upkeep) -> Result<bool>) -> Result<bool> {
    upkeeps.iter().try_fold(true, |so_far, upkeep| Ok(so_far && is(&**upkeep)?))
}
