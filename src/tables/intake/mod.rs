//! From rows of attached tables to documents, in the worker: changes become jobs, and rows are read for
//! these.

mod apply_changes;
mod backfill;
pub mod rests;
mod row_intake;
mod source_faults;

use crate::jobs::queue::Job;
use crate::tables::changes;
use crate::work::{Event, Feed};
use apply_changes::SourceChanges;
use kb_types::error::Result;
use rests::Rests;
use source_faults::SourceFaults;

#[derive(Default)]
pub struct RowFeed {
    changes: SourceChanges,
    rests: Rests,
    faults: SourceFaults,
}

impl Feed for RowFeed {
    fn take_up(&mut self) -> Result<()> {
        self.changes.take_up(&mut self.rests)
    }

    fn is_wanted(&self) -> Result<bool> {
        changes::any_waiting()
    }

    fn refresh(&mut self, jobs: Vec<Job>, events: &mut Vec<Event>) -> Result<Vec<Job>> {
        row_intake::refresh(jobs, &mut self.rests, &mut self.faults, events)
    }
}
