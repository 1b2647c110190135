//! Which vector tables want an HNSW index, and having them built.

use super::index_schedule::IndexSchedule;
use crate::error::Result;
use crate::pg::{txn, wake};
use crate::store::vector_store::VectorDb;
use crate::store::vector_store::index::{self, Unindexed};
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

/// Looks at these vector tables, or at all; one that is dropped meanwhile wants no index.
fn look(only: Option<&[VectorDb]>) -> Result<Vec<(Unindexed, Wish)>> {
    let mut looked = Vec::new();
    for table in txn::in_txn(|| index::unindexed(only))? {
        let wish = if table.is_filling || txn::in_txn(|| table.is_locked_exclusively())? {
            Wish::Later
        } else {
            match txn::in_txn(|| table.has_min_rows()) {
                Ok(true) => Wish::Index,
                Ok(false) => Wish::Nothing,
                Err(_) if txn::in_txn(|| table.is_going())? => Wish::Later,
                Err(error) => return Err(error),
            }
        };
        looked.push((table, wish));
    }
    Ok(looked)
}

/// The tables whose index is to be built now; for the indexer.
pub fn wanted() -> Result<Vec<Unindexed>> {
    let looked = look(None)?.into_iter();
    Ok(looked.filter(|(_, wish)| *wish == Wish::Index).map(|(table, _)| table).collect())
}

/// The worker's part: looks at tables that got vectors, and starts the indexer.
#[derive(Default)]
pub struct Indexes {
    schedule: IndexSchedule<VectorDb>,
    /// All tables were looked at since this worker started.
    are_all_known: bool,
}

impl Indexes {
    /// Vectors were written to a table: it may have enough of them for an index.
    pub fn note_vectors(&mut self, vector_db: &VectorDb) {
        self.schedule.note(vector_db);
    }

    /// Starts the indexer if a table wants an index.
    pub fn have_built(&mut self) -> Result<()> {
        // An indexer that runs looks for itself, and what comes after its last look is found when it has left.
        if wake::indexer_runs() {
            return Ok(());
        }
        let now = Instant::now();
        let due = self.schedule.due(now);
        if self.are_all_known && due.is_empty() {
            return Ok(());
        }
        let looked = look(self.are_all_known.then_some(due.as_slice()))?;
        let unindexed: HashSet<&VectorDb> = looked.iter().map(|(table, _)| table.vector_db()).collect();
        due.iter().filter(|table| !unindexed.contains(table)).for_each(|table| self.schedule.forget(table));
        let is_started = looked.iter().any(|(_, wish)| *wish == Wish::Index) && wake::start_indexer();
        for (table, wish) in &looked {
            let table = table.vector_db();
            match wish {
                Wish::Nothing => self.schedule.settle(table),
                Wish::Index if is_started => self.schedule.note_asked(table, now),
                Wish::Index | Wish::Later => self.schedule.note(table),
            }
        }
        self.are_all_known = true;
        Ok(())
    }
}
