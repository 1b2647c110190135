//! Which vector tables want an HNSW index, and having them built; which builds have outgrown a shared table.

use super::growth::Growth;
use super::index_schedule::IndexSchedule;
use super::log::Log;
use super::target::{Target, has_moved};
use crate::error::Result;
use crate::pg::{txn, wake};
use crate::store::metadata_indexes::{self, Task};
use crate::store::vector_store::index::{self, Unindexed};
use crate::store::vector_store::{self, Size, VectorDb};
use std::collections::HashSet;
use std::time::Instant;

/// What a vector table without an index wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    /// It has as many rows as its configuration asks for.
    Index,
    /// It may want one soon: it is being filled, or somebody has locked it.
    Later,
    /// It has too few rows.
    Nothing,
}

/// What a table wants; one that is dropped meanwhile wants no index. What was put since its index was asked for does not
/// make it wait.
fn look(table: &Unindexed, is_asked: bool) -> Result<Wish> {
    if (table.is_filling && !is_asked) || txn::in_txn(|| table.is_locked_exclusively())? {
        return Ok(Wish::Later);
    }
    match txn::in_txn(|| table.has_min_rows()) {
        Ok(true) => Ok(Wish::Index),
        Ok(false) => Ok(Wish::Nothing),
        Err(error) if error.is_lock() || txn::in_txn(|| table.is_going())? => Ok(Wish::Later),
        Err(error) => Err(error),
    }
}

/// Those of these tables, or of all, whose index is to be built now; for the indexer, which was `asked` for some.
pub fn wanted(only: Option<&[VectorDb]>, asked: &[u32]) -> Result<Vec<Unindexed>> {
    let mut tables = txn::in_txn(|| index::unindexed(only))?;
    // The worker logs which one cannot be looked at; the others get their indexes.
    tables.retain(|table| matches!(look(table, asked.contains(&table.oid)), Ok(Wish::Index)));
    Ok(tables)
}

/// What became of a build that got vectors.
enum Moved {
    To(VectorDb),
    No,
    NotYet,
}

fn move_if_large(build_no: i64) -> Result<Moved> {
    Ok(match vector_store::size(build_no)? {
        Size::Small => Moved::No,
        Size::Alone => Moved::NotYet,
        Size::Outgrown(shared) => vector_store::move_out(build_no, &shared)?.map_or(Moved::No, Moved::To),
    })
}

/// The worker's part: looks at tables that got vectors, and starts the indexer.
#[derive(Default)]
pub struct Indexes {
    schedule: IndexSchedule<VectorDb>,
    /// Of builds in shared tables.
    growth: Growth,
    /// All tables were looked at since this worker started.
    are_all_known: bool,
    /// Of the indexes on keys of metadata.
    metadata: IndexSchedule<Task>,
}

impl Indexes {
    /// Vectors were written to a table: it may have enough of them for an index, or a build for a table of its own.
    pub fn note_vectors(&mut self, target: &Target, vectors: usize) {
        let vector_db = target.vector_db();
        self.schedule.note(vector_db);
        // One that has moved is not looked for in the shared table any more.
        if !target.build.owns_table && vector_db == &target.build.vector_db {
            self.growth.note(target.build.build_no, vectors, vector_db.config.min_rows);
        }
    }

    /// Gives builds that have outgrown a shared table one of their own.
    pub fn move_large_builds(&mut self, log: &mut Log) {
        let mut due = self.growth.take_due(Instant::now()).into_iter();
        while let Some(build_no) = due.next() {
            match txn::in_txn(|| move_if_large(build_no)) {
                Ok(Moved::To(own)) => {
                    self.growth.resume();
                    self.schedule.note(&own);
                    has_moved(build_no, own);
                }
                Ok(Moved::No) => {}
                // Others may come to its table before it has its index.
                Ok(Moved::NotYet) => self.growth.put_back(build_no),
                Err(error) => {
                    log.write(&format!("build {build_no} stays in its shared table for now"), &error);
                    self.growth.put_back(build_no);
                    due.by_ref().for_each(|build_no| self.growth.put_back(build_no));
                    self.growth.pause(Instant::now());
                }
            }
        }
    }

    /// Whether a build is soon to be moved.
    pub fn is_moving(&self) -> bool {
        self.growth.is_pausing()
    }

    /// Starts the indexer if an index on a key of metadata is to be made or dropped. False: one is, and nobody is about to
    /// do it now.
    pub fn have_metadata_indexed(&mut self) -> Result<bool> {
        if wake::indexer_runs() {
            return Ok(true);
        }
        let tasks: HashSet<Task> = txn::in_txn(metadata_indexes::tasks)?.into_iter().collect();
        // What was done is asked for without a pause when it is wanted once more.
        self.metadata.keep(|task| tasks.contains(task));
        tasks.iter().for_each(|task| self.metadata.note(task));
        let now = Instant::now();
        let due = self.metadata.due(now);
        if !due.is_empty() && wake::start_indexer(&[]) {
            tasks.iter().for_each(|task| self.metadata.note_asked(task, now));
        }
        Ok(!tasks.iter().any(|task| self.metadata.is_hopeful(task)))
    }

    /// Whether an index on a key of metadata is to be made or dropped that this worker has not seen.
    pub fn has_new_metadata_indexes(&self) -> Result<bool> {
        Ok(metadata_indexes::tasks()?.iter().any(|task| !self.metadata.knows(task)))
    }

    /// Starts the indexer if a table wants an index.
    pub fn have_built(&mut self, log: &mut Log) -> Result<()> {
        // An indexer that runs looks for itself, and what comes after its last look is found when it has left.
        if wake::indexer_runs() {
            return Ok(());
        }
        let due = self.schedule.due(Instant::now());
        if self.are_all_known && due.is_empty() {
            return Ok(());
        }
        let tables = txn::in_txn(|| index::unindexed(self.are_all_known.then_some(due.as_slice())))?;
        let unindexed: HashSet<&VectorDb> = tables.iter().map(Unindexed::vector_db).collect();
        due.iter().filter(|table| !unindexed.contains(table)).for_each(|table| self.schedule.forget(table));
        let mut ready = Vec::new();
        for table in &tables {
            match look(table, false) {
                Ok(Wish::Index) => ready.push(table),
                Ok(Wish::Later) => self.schedule.note(table.vector_db()),
                Ok(Wish::Nothing) => self.schedule.settle(table.vector_db()),
                // Only this one waits.
                Err(error) => {
                    self.schedule.put_off(table.vector_db(), Instant::now());
                    let name = txn::in_txn(|| table.describe())?;
                    log.write(&format!("worker cannot tell whether {name} wants an index"), &error);
                }
            }
        }
        let (asked, later) = ready.split_at(ready.len().min(wake::MOST_INDEXES));
        let oids: Vec<u32> = asked.iter().map(|table| table.oid).collect();
        let is_started = !asked.is_empty() && wake::start_indexer(&oids);
        for table in asked {
            match is_started {
                // The pause begins when the indexer can.
                true => self.schedule.note_asked(table.vector_db(), Instant::now()),
                false => self.schedule.note(table.vector_db()),
            }
        }
        later.iter().for_each(|table| self.schedule.note(table.vector_db()));
        self.are_all_known = true;
        Ok(())
    }
}
