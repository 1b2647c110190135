//! Fresh planner statistics, once tables have grown so much that older plans of sessions no longer fit.

use crate::pg::{report, txn};
use crate::vectors;
use crate::vectors::VectorDb;
use std::collections::HashSet;

/// The number of chunks after which statistics are taken for the first time, and the factor by which it must
/// grow before they are taken again.
const FIRST: usize = 1_000;
const GROWTH: usize = 5;
/// Vector tables of which statistics are taken at once, each of them locked until that is done; autovacuum
/// takes those of others.
const TABLES: usize = 64;

/// Counts what a worker writes.
pub struct Statistics {
    chunks: usize,
    next: usize,
    vector_dbs: HashSet<VectorDb>,
}

impl Default for Statistics {
    fn default() -> Self {
        Statistics { chunks: 0, next: FIRST, vector_dbs: HashSet::new() }
    }
}

impl Statistics {
    /// Counts chunks that were written, whose vectors go to `vector_db`.
    pub fn add(&mut self, chunks: usize, vector_db: &VectorDb) {
        self.chunks += chunks;
        if self.vector_dbs.len() < TABLES && !self.vector_dbs.contains(vector_db) {
            self.vector_dbs.insert(vector_db.clone());
        }
    }

    /// Takes statistics if the tables have grown. A failure is only logged: nothing depends on them.
    pub fn refresh_if_due(&mut self) {
        if self.chunks < self.next {
            return;
        }
        self.next = self.chunks * GROWTH;
        let vector_dbs = std::mem::take(&mut self.vector_dbs);
        if let Err(error) = txn::in_txn(|| vectors::refresh_statistics(&vector_dbs)) {
            report::log(&format!("worker cannot analyze tables now: {error}"));
        }
    }
}
