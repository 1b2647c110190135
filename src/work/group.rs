//! What a kind of work asks the gateway for: vectors of chunks, by groups of documents.

use super::target::Destination;
use super::{FreshChunks, Hold, Target};
use kb_types::row_states::Priority;
use std::sync::Arc;
use std::time::Instant;

/// Documents of one build whose chunks are looked through for missing vectors, in order.
pub struct Group {
    pub target: Arc<Target>,
    pub priority: Priority,
    pub documents: Vec<i64>,
    /// How many of their chunks may have no vector, about.
    pub chunks: usize,
    /// Document and ordinal up to which that is done.
    pub after: (i64, i32),
    /// What is left of their chunks, where they were just written.
    pub fresh: FreshChunks,
    /// Of each document: it is not done before the group is looked through.
    pub holds: Vec<Hold>,
}

impl Group {
    pub fn new(target: Arc<Target>, priority: Priority) -> Group {
        let fresh = FreshChunks::new(Instant::now());
        Group { target, priority, documents: Vec::new(), chunks: 0, after: (0, -1), fresh, holds: Vec::new() }
    }

    /// Whether it fills no request of its own.
    pub fn is_small(&self) -> bool {
        self.target.is_remote() && self.chunks < self.target.embedder.config.batch_size
    }

    /// Whether another's documents can be looked through with its own: all of them lie behind what is done.
    pub fn takes(&self, other: &Group) -> bool {
        self.is_small()
            && self.priority == other.priority
            && self.target.build_no() == other.target.build_no()
            && self.target.embedder == other.target.embedder
            && other.documents.iter().all(|document_id| *document_id > self.after.0)
    }
}
