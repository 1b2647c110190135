//! Has the indexes on keys of metadata made and dropped: by the indexer, since they take long.

use super::metadata_indexes;
use super::metadata_indexes::IndexTask;
use crate::pg::{txn, wake};
use crate::upkeep::{IndexSchedule, Log, Upkeep};
use kb_types::error::Result;
use std::collections::HashSet;
use std::time::Instant;

#[derive(Default)]
pub struct MetadataIndexes {
    schedule: IndexSchedule<IndexTask>,
    /// None is left that the indexer is about to make or drop.
    are_done: bool,
}

impl Upkeep for MetadataIndexes {
    fn run(&mut self, _log: &mut Log) -> Result<()> {
        self.are_done = self.have_made()?;
        Ok(())
    }

    fn is_done(&self) -> Result<bool> {
        Ok(self.are_done)
    }

    /// Whether one is to be made or dropped that this worker has not seen.
    fn is_wanted(&self) -> Result<bool> {
        Ok(metadata_indexes::tasks()?.iter().any(|task| !self.schedule.knows(task)))
    }
}

impl MetadataIndexes {
    /// Starts the indexer if one is to be made or dropped. False: one is, and nobody is about to do it now.
    fn have_made(&mut self) -> Result<bool> {
        if wake::indexer_runs() {
            return Ok(true);
        }
        let tasks: HashSet<IndexTask> = txn::in_txn(metadata_indexes::tasks)?.into_iter().collect();
        // What was done is asked for without a pause when it is wanted once more.
        self.schedule.keep(|task| tasks.contains(task));
        tasks.iter().for_each(|task| self.schedule.note(task));
        let now = Instant::now();
        let due = self.schedule.due(now);
        if !due.is_empty() && wake::start_indexer(&[]) {
            tasks.iter().for_each(|task| self.schedule.note_asked(task, now));
        }
        Ok(!tasks.iter().any(|task| self.schedule.is_hopeful(task)))
    }
}
