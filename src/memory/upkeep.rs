//! Begins the consolidations whose time has come, and counts the accesses of recalls, fetched from the
//! gateway. The launcher starts a worker in each database now and then, which finds what is due.
//!
//! The gateway gives a part again until the worker says that it is written. A part that was committed just
//! before a worker died is counted twice.

use super::consolidation;
use super::sql::{entries, stores};
use crate::gateway::client;
use crate::pg::{txn, wake};
use crate::upkeep::{Log, Upkeep};
use kb_types::error::Result;
use std::time::{Duration, Instant};

/// How often accesses are asked for.
const FETCH_EVERY: Duration = Duration::from_secs(2);
/// How long the gateway's answer is waited for: what does not come now comes the next time.
const FETCH_WITHIN: Duration = Duration::from_secs(2);
/// Parts at most that are written at a time.
const PARTS: usize = 10;

#[derive(Default)]
pub struct ConsolidationSchedule {
    has_begun: bool,
}

impl Upkeep for ConsolidationSchedule {
    fn run(&mut self, _log: &mut Log) -> Result<()> {
        if txn::in_txn(stores::any_consolidation_due)? {
            self.has_begun |= txn::in_txn(consolidation::make_due)?;
        }
        Ok(())
    }

    fn is_wanted(&self) -> Result<bool> {
        stores::any_consolidation_due()
    }

    fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.has_begun)
    }
}

#[derive(Default)]
pub struct AccessCounts {
    fetched_at: Option<Instant>,
    /// The number of the last part that was written, as the gateway counts; 0: none.
    written: u64,
    /// Accesses were counted since that was last asked.
    has_counted: bool,
}

impl Upkeep for AccessCounts {
    fn run(&mut self, log: &mut Log) -> Result<()> {
        if self.fetched_at.is_none_or(|at| at.elapsed() >= FETCH_EVERY) {
            self.fetch(log);
        }
        Ok(())
    }

    fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.has_counted)
    }

    /// Counts what waits.
    fn end(&mut self, log: &mut Log) {
        self.fetch(log);
    }
}

impl AccessCounts {
    /// A fault costs accesses, and nothing else.
    fn fetch(&mut self, log: &mut Log) {
        self.fetched_at = Some(Instant::now());
        for _ in 0..PARTS {
            match self.fetch_part() {
                Ok(true) => self.has_counted = true,
                Ok(false) => break,
                Err(error) => {
                    log.write("worker cannot count accesses to memories", &error);
                    break;
                }
            }
        }
    }

    fn fetch_part(&mut self) -> Result<bool> {
        if !wake::gateway_runs() {
            return Ok(false);
        }
        let part = client::take_accesses(self.written, FETCH_WITHIN)?;
        if part.tenants.is_empty() {
            return Ok(false);
        }
        let result = txn::in_txn(|| part.tenants.iter().try_for_each(entries::count_accesses));
        // What cannot be written now may be later; what can never be written is not tried for ever.
        if result.as_ref().err().is_none_or(|error| !error.is_lock()) {
            self.written = part.number;
        }
        result.map(|()| true)
    }
}
