//! Statistics of tables that have grown so much that plans made for them before will not do.

use crate::pg::{report, txn};
use crate::store::vector_store::{self, VectorDb};
use std::collections::HashSet;

/// Chunks after which statistics are taken for the first time; then whenever there are twice as many.
const FIRST: usize = 1_000;

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
    /// So many chunks were written, whose vectors go there.
    pub fn add(&mut self, chunks: usize, vector_db: &VectorDb) {
        self.chunks += chunks;
        if !self.vector_dbs.contains(vector_db) {
            self.vector_dbs.insert(vector_db.clone());
        }
    }

    /// Takes statistics if the tables have grown. Statistics are no promise: a failure is logged and that is all.
    pub fn refresh_if_due(&mut self) {
        if self.chunks < self.next {
            return;
        }
        self.next = self.chunks * 2;
        if let Err(error) = txn::in_txn(|| vector_store::refresh_statistics(&self.vector_dbs)) {
            report::log(&format!("worker takes no statistics now: {error}"));
        }
    }
}
