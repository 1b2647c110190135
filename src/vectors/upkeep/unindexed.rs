//! Which knowledge bases get vectors faster than these get an index. Nothing more is taken in for them until
//! one is built, so that no question has too many vectors to compare one by one.

use super::back_pressure::BackPressure;
use crate::pg::{txn, wake};
use crate::vectors::upkeep::wanted_indexes::Grown;
use crate::vectors::{VectorDb, tail, unindexed};
use kb_types::vector_db::VectorDbType;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The vectors without an index are counted again when this fraction (1/16) of the number that is allowed has
/// been written, and at this interval while a knowledge base waits.
const LOOK_AFTER: u64 = 16;
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Builds with a table of their own that got vectors since the indexer runs, by number.
#[derive(Default)]
pub struct Unindexed(HashMap<i64, Filling>);

struct Filling {
    kb_no: i64,
    vector_db: VectorDb,
    /// About how many vectors may be without an index.
    most: u64,
    /// Vectors written since their number was looked at.
    since: u64,
    looked: Option<Instant>,
    pressure: BackPressure,
}

impl Unindexed {
    pub fn note(&mut self, build: &Grown, vectors: usize) {
        let vector_db = build.is_in;
        if !build.owns_table || vector_db.kind != VectorDbType::Pgvector {
            return;
        }
        let filling = self.0.entry(build.build_no).or_insert_with(|| Filling {
            kb_no: build.kb_no,
            vector_db: vector_db.clone(),
            most: tail::most_rows(vector_db, true),
            since: 0,
            looked: None,
            pressure: BackPressure::default(),
        });
        filling.since += vectors as u64;
    }

    /// The knowledge bases for which nothing is to be taken in now.
    pub fn full(&mut self, now: Instant) -> Vec<i64> {
        // Without an indexer there is nothing to wait for.
        if !wake::indexer_runs() {
            self.0.clear();
            return Vec::new();
        }
        self.0.retain(|_, filling| {
            let is_over = filling.looked.is_none_or(|at| now.saturating_duration_since(at) >= LOOK_EVERY);
            if filling.since < filling.most / LOOK_AFTER && !(filling.pressure.is_held() && is_over) {
                return true;
            }
            // Somebody may have dropped or locked the table: then nobody waits for its index, either.
            let Ok(state) = txn::in_txn(|| unindexed(&filling.vector_db, 2 * filling.most)) else {
                return false;
            };
            filling.pressure.judge(state, filling.most, now);
            (filling.since, filling.looked) = (0, Some(now));
            true
        });
        self.0.values().filter(|filling| filling.pressure.is_held()).map(|filling| filling.kb_no).collect()
    }
}
