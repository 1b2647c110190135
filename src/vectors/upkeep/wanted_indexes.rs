//! Which vector tables want an HNSW index, and having them built; which builds have outgrown a shared table.
//!
//! A table gets its first index when it has `min_rows` and none of its documents waits, or when one has
//! waited for ten minutes, or, while documents keep coming, when it has three quarters of the rows that may
//! be without an index (`kb_search::vector_segments::next`). The worker looks at a table when the table has
//! got vectors, and asks the indexer for those that are ready. If an index was asked for and is still missing
//! at the next look, a pause comes first, doubled each time up to ten minutes (`upkeep/index_schedule.rs`).
//! The pauses are in memory: the next worker begins with none.

use super::growth::Growth;
use super::unindexed::Unindexed;
use crate::pg::{txn, wake};
use crate::upkeep::{IndexSchedule, Log, Upkeep};
use crate::vectors;
use crate::vectors::hnsw;
use crate::vectors::hnsw::{IndexWork, Table};
use crate::vectors::{Size, VectorDb, moved_builds, tail};
use kb_search::vector_segments::rest_while_busy;
use kb_types::error::Result;
use std::collections::{HashMap, HashSet};
use std::time::Instant;

/// What a vector table wants.
#[derive(Debug, Clone, PartialEq)]
pub enum Wish {
    Work(IndexWork),
    /// It may want something soon: it is being filled, or somebody has locked it.
    Later,
    Nothing,
}

/// What a table wants; one that is dropped meanwhile wants no index. See [`Table::work`].
pub fn look(table: &Table, is_asked: bool, is_quiet: bool) -> Result<Wish> {
    if txn::in_txn(|| table.is_locked_exclusively())? {
        return Ok(Wish::Later);
    }
    match txn::in_txn(|| table.work(is_asked, is_quiet)) {
        Ok(IndexWork::Nothing) => Ok(if table.is_waited_for { Wish::Later } else { Wish::Nothing }),
        Ok(work) => Ok(Wish::Work(work)),
        Err(error) if error.is_lock() || txn::in_txn(|| table.is_going())? => Ok(Wish::Later),
        Err(error) => Err(error),
    }
}

/// See [`Table::tidy`]; not of a table that somebody has locked or drops.
fn tidy(table: &Table) -> Result<()> {
    if txn::in_txn(|| table.is_locked_exclusively())? {
        return Ok(());
    }
    match txn::in_txn(|| table.tidy()) {
        Err(error) if !error.is_lock() && !txn::in_txn(|| table.is_going())? => Err(error),
        _ => Ok(()),
    }
}

/// What became of a build that got vectors.
enum Moved {
    To(VectorDb),
    No,
    NotYet,
}

fn move_if_large(build_no: i64) -> Result<Moved> {
    Ok(match vectors::size(build_no)? {
        Size::Small => Moved::No,
        Size::Alone => Moved::NotYet,
        Size::Outgrown(shared) => vectors::move_out(build_no, &shared)?.map_or(Moved::No, Moved::To),
    })
}

/// The worker's part: looks at tables that got vectors, and starts the indexer.
#[derive(Default)]
pub struct Indexes {
    schedule: IndexSchedule<VectorDb>,
    /// What each table was last asked for.
    asked: HashMap<VectorDb, IndexWork>,
    /// Vectors that each table got since the indexer runs, and how many it may get while its segments are
    /// merged.
    since: HashMap<VectorDb, (u64, u64)>,
    unindexed: Unindexed,
    /// Of builds in shared tables.
    growth: Growth,
    /// All tables were looked at since this worker started.
    are_all_known: bool,
}

/// A build that vectors were written for.
pub struct Grown<'a> {
    pub build_no: i64,
    pub kb_no: i64,
    /// Whether it was made with a table of its own.
    pub owns_table: bool,
    /// Where it was when its documents were read, and where it is now.
    pub was_in: &'a VectorDb,
    pub is_in: &'a VectorDb,
}

impl Upkeep for Indexes {
    fn run(&mut self, log: &mut Log) -> Result<()> {
        self.move_large_builds(log);
        self.have_built(log)
    }

    /// Whether no build is soon to be moved.
    fn is_done(&self) -> Result<bool> {
        Ok(!self.growth.is_pausing())
    }
}

impl Indexes {
    /// Vectors were written to a table: it may have enough of them for an index, or a build for a table of
    /// its own.
    pub fn note_vectors(&mut self, build: &Grown, vectors: usize) {
        let vector_db = build.is_in;
        self.schedule.note(vector_db);
        match self.since.get_mut(vector_db) {
            Some((since, _)) => *since += vectors as u64,
            None => {
                let is_packed = build.owns_table || vector_db != build.was_in;
                let most = rest_while_busy(tail::most_rows(vector_db, is_packed));
                self.since.insert(vector_db.clone(), (vectors as u64, most));
            }
        }
        self.unindexed.note(build, vectors);
        // One that has moved is not looked for in the shared table any more.
        if !build.owns_table && vector_db == build.was_in {
            self.growth.note(build.build_no, vectors, vector_db.config.min_rows);
        }
    }

    /// The knowledge bases for which nothing is to be taken in before an index is built.
    pub fn full(&mut self) -> Vec<i64> {
        self.unindexed.full(Instant::now())
    }

    /// Gives builds that have outgrown a shared table one of their own.
    fn move_large_builds(&mut self, log: &mut Log) {
        let mut due = self.growth.take_due(Instant::now()).into_iter();
        while let Some(build_no) = due.next() {
            match txn::in_txn(|| move_if_large(build_no)) {
                Ok(Moved::To(own)) => {
                    self.growth.resume();
                    self.schedule.note(&own);
                    moved_builds::note(build_no, own);
                }
                Ok(Moved::No) => {}
                // Other builds may come to its table before the table has its index.
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

    /// Starts the indexer if a table wants an index.
    fn have_built(&mut self, log: &mut Log) -> Result<()> {
        // An indexer that runs looks for itself, and what comes after its last look is found when it has
        // left.
        if wake::indexer_runs() {
            return self.end_merges();
        }
        self.since.clear();
        txn::in_txn(hnsw::weak)?.iter().for_each(|table| self.schedule.note(table));
        let due = self.schedule.due(Instant::now());
        if self.are_all_known && due.is_empty() {
            return Ok(());
        }
        let tables = txn::in_txn(|| hnsw::tables(self.are_all_known.then_some(due.as_slice())))?;
        let there: HashSet<&VectorDb> = tables.iter().map(Table::vector_db).collect();
        due.iter().filter(|table| !there.contains(table)).for_each(|table| self.schedule.forget(table));
        let mut ready = Vec::new();
        for table in &tables {
            let wish = tidy(table).and_then(|()| look(table, false, false));
            // It has what it was asked for: it waits for no pause when it wants something else.
            let is_done = |asked: &IndexWork| match &wish {
                Ok(Wish::Work(work)) => !work.is_same(asked),
                Ok(Wish::Nothing) => true,
                Ok(Wish::Later) | Err(_) => false,
            };
            if self.asked.get(table.vector_db()).is_some_and(is_done) {
                self.asked.remove(table.vector_db());
                self.schedule.forget(table.vector_db());
            }
            match wish {
                Ok(Wish::Work(work)) => ready.push((table, work)),
                Ok(Wish::Later) => self.schedule.note(table.vector_db()),
                Ok(Wish::Nothing) => self.schedule.settle(table.vector_db()),
                // Only this table waits.
                Err(error) => {
                    self.schedule.put_off(table.vector_db(), Instant::now());
                    let name = txn::in_txn(|| table.describe())?;
                    log.write(&format!("worker cannot determine whether {name} needs an index"), &error);
                }
            }
        }
        let later = ready.split_off(ready.len().min(wake::MOST_INDEXES));
        let oids: Vec<u32> = ready.iter().map(|(table, _)| table.oid).collect();
        let is_started = !ready.is_empty() && wake::start_indexer(&oids);
        for (table, work) in ready {
            match is_started {
                // The pause begins when the indexer can.
                true => {
                    self.schedule.note_asked(table.vector_db(), Instant::now());
                    self.asked.insert(table.vector_db().clone(), work);
                }
                false => self.schedule.note(table.vector_db()),
            }
        }
        later.iter().for_each(|(table, _)| self.schedule.note(table.vector_db()));
        self.are_all_known = true;
        Ok(())
    }

    /// What is written while segments are merged has no index: where that is much, the merge is put off.
    fn end_merges(&mut self) -> Result<()> {
        for (table, (since, most)) in &mut self.since {
            if *since >= *most {
                *since = 0;
                txn::in_txn(|| hnsw::cancel_merge(table))?;
            }
        }
        Ok(())
    }
}
