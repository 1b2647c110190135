//! Which jobs come next: live edits before backfill, each tenant and each of its knowledge bases in turn, from where
//! the last look at the queue ended.

use super::pauses::Paused;
use crate::error::Result;
use crate::model::states::Priority;
use crate::pg::txn;
use crate::store::jobs::{self, Job, Wanted};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How often the queue is looked at from its beginning: for jobs that were given back, and those edited while
/// they were worked on.
const FROM_START: Duration = Duration::from_secs(2);
/// The same while nothing is found.
const FROM_START_IDLE: Duration = Duration::from_millis(250);

pub struct Claims {
    turn: i64,
    /// By priority and knowledge base, the job_no up to which the queue has been looked through.
    floors: HashMap<(Priority, i64), i64>,
    from_start: Instant,
}

impl Default for Claims {
    fn default() -> Self {
        Claims { turn: 0, floors: HashMap::new(), from_start: Instant::now() }
    }
}

impl Claims {
    /// Claims at most `limit` jobs, no more than `share` of one knowledge base and priority. Passed over are
    /// knowledge bases with one of the embedders `busy`, and documents that only wait for vectors of one `paused`.
    pub fn claim(
        &mut self,
        limit: usize,
        share: usize,
        lease: Duration,
        busy: Vec<String>,
        paused: Paused,
    ) -> Result<Vec<Job>> {
        if self.from_start.elapsed() > FROM_START {
            self.start_again();
        }
        let Paused { of_all: paused, of_one: paused_for } = paused;
        let mut wanted = Wanted { share: share as i64, busy, paused, paused_for, ..Wanted::default() };
        let mut claimed = self.look(&mut wanted, limit, lease)?;
        if claimed.is_empty() && self.from_start.elapsed() > FROM_START_IDLE && !self.floors.is_empty() {
            self.start_again();
            claimed = self.look(&mut wanted, limit, lease)?;
        }
        Ok(claimed)
    }

    fn start_again(&mut self) {
        self.floors.clear();
        self.from_start = Instant::now();
    }

    fn look(&mut self, wanted: &mut Wanted, limit: usize, lease: Duration) -> Result<Vec<Job>> {
        let mut claimed: Vec<Job> = Vec::new();
        for priority in [Priority::Live, Priority::Backfill] {
            wanted.priority = priority;
            // A quarter is kept for backfill, or a steady stream of edits would keep it waiting for ever.
            let most = if priority == Priority::Live { limit - limit / 4 } else { limit };
            wanted.limit = most.saturating_sub(claimed.len()) as i64;
            self.turn += 1;
            wanted.turn = self.turn;
            let floors = self.floors.iter().filter(|((of, _), _)| *of == priority);
            wanted.floors = floors.map(|((_, kb_no), floor)| (*kb_no, *floor)).unzip();
            if wanted.limit == 0 {
                continue;
            }
            match txn::in_txn(|| jobs::claim(wanted, lease)) {
                Ok(jobs) => claimed.extend(jobs),
                Err(error) if claimed.is_empty() => return Err(error),
                // What is claimed already has a lease: it must not be lost.
                Err(_) => break,
            }
        }
        for job in &claimed {
            let floor = self.floors.entry((job.priority, job.kb_no)).or_insert(0);
            *floor = job.job_no.max(*floor);
        }
        Ok(claimed)
    }
}
