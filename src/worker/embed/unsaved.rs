//! Vectors that the database did not take (a full disk, a locked table): they are paid for, so they are kept
//! until it does.
//!
//! While vectors wait that no table takes, nothing is claimed or sent. Where a lock on a table is the reason,
//! nothing is sent for that table only.

use super::embed_batch::Batch;
use crate::work::Target;
use kb_gateway::protocol::EmbedReply;
use std::time::{Duration, Instant};

/// The pause before they are written again.
const PAUSE: Duration = Duration::from_secs(2);

pub struct Unsaved {
    pub batch: Batch<Target>,
    pub embedded: EmbedReply,
    /// Their table is locked; vectors of other tables can be written.
    is_of_table: bool,
}

#[derive(Default)]
pub struct UnsavedVectors {
    waiting: Vec<Unsaved>,
    retry_at: Option<Instant>,
}

impl UnsavedVectors {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether no table takes vectors: then nothing more is sent, for what comes back could not be written.
    pub fn is_stuck(&self) -> bool {
        self.waiting.iter().any(|unsaved| !unsaved.is_of_table)
    }

    /// Whether vectors wait for the lock of a build's table.
    pub fn is_table_locked(&self, target: &Target) -> bool {
        let is_of_it = |unsaved: &Unsaved| unsaved.batch.target.vector_db() == target.vector_db();
        self.waiting.iter().any(|unsaved| unsaved.is_of_table && is_of_it(unsaved))
    }

    /// Keeps vectors whose table is known to be locked, to be written when the others of that table are.
    pub fn add(&mut self, batch: Batch<Target>, embedded: EmbedReply) {
        self.waiting.push(Unsaved { batch, embedded, is_of_table: true });
    }

    /// Keeps vectors that were just refused.
    pub fn add_refused(&mut self, batch: Batch<Target>, embedded: EmbedReply, is_of_table: bool) {
        self.waiting.push(Unsaved { batch, embedded, is_of_table });
        self.retry_at = Some(Instant::now() + PAUSE);
    }

    /// Those to be written again, if it is time.
    pub fn take_due(&mut self) -> Vec<Unsaved> {
        match self.retry_at.is_some_and(|at| at > Instant::now()) {
            true => Vec::new(),
            false => std::mem::take(&mut self.waiting),
        }
    }

    /// Puts back those that were not tried, before the ones that were refused once more.
    pub fn put_back(&mut self, untried: impl IntoIterator<Item = Unsaved>) {
        self.waiting.splice(..0, untried);
    }
}
