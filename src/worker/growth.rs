//! When tables have grown so much that plans made for them before will not do.

use crate::pg::{report, txn};
use crate::store::vectors;
use std::collections::BTreeSet;

/// Chunks after which statistics are taken for the first time; then whenever there are twice as many.
const FIRST: usize = 1_000;

/// Counts what a worker writes.
pub struct Growth {
    chunks: usize,
    next: usize,
    tables: BTreeSet<String>,
}

impl Default for Growth {
    fn default() -> Self {
        Growth { chunks: 0, next: FIRST, tables: BTreeSet::new() }
    }
}

impl Growth {
    /// So many chunks were written, whose vectors go to this table.
    pub fn add(&mut self, chunks: usize, table_name: &str) {
        self.chunks += chunks;
        if !self.tables.contains(table_name) {
            self.tables.insert(table_name.to_string());
        }
    }

    /// Takes statistics if they are due. Statistics are no promise: a failure is logged and that is all.
    pub fn look(&mut self) {
        if self.chunks < self.next {
            return;
        }
        self.next = self.chunks * 2;
        let tables: Vec<String> = self.tables.iter().cloned().collect();
        if let Err(error) = txn::in_txn(|| vectors::refresh_statistics(&tables)) {
            report::log(&format!("worker takes no statistics now: {error}"));
        }
    }
}
