//! The statements about vectors: vector tables, a file per concern, and kb.vector_dbs.

mod analyze;
mod by_index;
pub mod grants;
pub mod index;
mod inventory;
mod memory;
mod missing;
mod moved;
mod nearest;
mod own_table;
mod pgvector;
mod policies;
mod progress;
mod sample;
mod segments;
mod table;
pub mod tail;
mod vector_db;
pub mod vector_dbs;

pub use analyze::refresh as refresh_statistics;
pub use inventory::{
    attach_restored, count, delete_of_build, delete_of_chunks, drop_unused, index_progress, index_state,
    is_being_restored, lost, owned, unused,
};
pub use moved::move_vectors;
pub use nearest::{Scan, Search};
pub use own_table::{Size, move_out, size};
pub use segments::{Searched, unindexed};
pub use vector_db::VectorDb;

use kb_types::error::Result;
use kb_types::{Missing, VectorDbType};
use std::collections::{HashMap, HashSet};
use uuid::Uuid;

/// Whether a store can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    Ready,
    /// Somebody dropped what held the vectors, or it has not been made.
    Gone,
    /// It is there and cannot be read now: an unlogged table, on a standby.
    Unreadable,
}

/// What holds the vectors of one build or of several. Chunks and documents are always rows of kb.chunks and
/// kb.documents, which decide what there is and who may read it: a vector whose chunk is gone is in no answer.
pub trait VectorStore {
    /// Makes it, empty. As the owner.
    fn create(&self) -> Result<()>;

    /// Removes it with all that is in it; fine if it is gone already. As the owner or the worker.
    fn remove(&self) -> Result<()>;

    /// Removes all that is in it, at once; fine if it is gone. Who asks it waits until the end of the transaction, and nobody else. As
    /// the owner or the worker.
    fn empty(&self) -> Result<()>;

    fn health(&self) -> Result<Health>;

    /// How many vectors of a build the caller's tenant has there; 0 unless it is ready. Works on a standby.
    fn count(&self, build_no: i64) -> Result<i64>;

    /// Writes vectors of chunks; `numbers` holds them one after the other. Chunks that were deleted meanwhile, or that
    /// an open transaction is deleting, are passed over; returns the others.
    fn write(
        &self,
        build_no: i64,
        fingerprint: i64,
        chunk_ids: &[Uuid],
        numbers: &[f32],
    ) -> Result<HashSet<Uuid>>;

    /// As [`VectorStore::write`] of all of these chunks of a knowledge base, each with its tenant, at a fraction of the cost. An error,
    /// after which the transaction is to be ended, where one was deleted meanwhile or has a vector, or where a lock is waited for
    /// too long; false, and nothing is done, where the trigger is missing by which that is known.
    fn write_all(
        &self,
        build_no: i64,
        kb_no: i64,
        fingerprint: i64,
        chunks: &[(Uuid, &str)],
        numbers: &[f32],
    ) -> Result<bool>;

    /// Deletes the vectors of chunks of a build, or of all, which this transaction has deleted: the triggers of kb.chunks and kb.builds
    /// call it. A serialization failure where there are some that the transaction's snapshot does not show.
    fn delete(&self, build_no: i64, chunk_ids: Option<&[Uuid]>) -> Result<()>;

    /// Begins to look for the nearest chunks. Vectors are read as a role of kb's own, since callers have no right to read
    /// them: before a caller sees anything of a chunk, its row is read as the caller. `searched`: what a scan by index looks at;
    /// None: there is no index.
    fn search<'a>(&self, search: &Search<'a>, searched: Option<&Searched>) -> Result<Scan<'a>>;

    /// What a search by index looks at; None: it has no index, so that every search is exact.
    fn searched(&self) -> Result<Option<Searched>>;

    /// How many segments have an index, and how many vectors of a build have none. As [`VectorStore::count`].
    fn index_state(&self, build_no: i64) -> Result<(i64, i64)>;

    /// The similarity of a vector to those of these chunks, as [`VectorStore::search`] reads them; of those that have one.
    fn similarities(&self, build_no: i64, vector: &[f32], chunk_ids: &[Uuid]) -> Result<HashMap<Uuid, f64>>;

    /// Chunks of a build chosen at random, with their vectors, read as [`VectorStore::search`] does.
    fn sample(&self, build_no: i64, most: i64) -> Result<Vec<(Uuid, Vec<f32>)>>;

    /// The vectors of these chunks, as [`VectorStore::search`] reads them; of those that have one.
    fn vectors(&self, build_no: i64, chunk_ids: &[Uuid]) -> Result<HashMap<Uuid, Vec<f32>>>;

    /// The next chunks of documents that have no vector yet, by document and ordinal, after `after`.
    fn missing(
        &self,
        build_no: i64,
        document_ids: &[i64],
        after: (i64, i32),
        limit: i64,
    ) -> Result<Vec<Missing>>;

    /// Documents of a knowledge base whose status is ready, but which have no chunk in the build, or one without a
    /// vector.
    fn incomplete(&self, kb_no: i64, build_no: i64) -> Result<Vec<i64>>;

    /// Those of these chunks, none of which has a vector, whose text has one by now elsewhere in the build.
    fn with_equal_text(&self, build_no: i64, fingerprint: i64, chunk_ids: &[Uuid]) -> Result<Vec<Uuid>>;

    /// Those of these chunks that have a vector.
    fn among_those_with_vectors(&self, build_no: i64, chunk_ids: &[Uuid]) -> Result<HashSet<Uuid>>;

    /// Gives chunks of these documents that have no vector yet the vector of the same text under the same fingerprint
    /// elsewhere in the knowledge base, from this build or from `lender` (the live one). Returns how many.
    fn reuse(
        &self,
        build_no: i64,
        fingerprint: i64,
        document_ids: &[i64],
        lender: Option<(&VectorDb, i64)>,
    ) -> Result<u64>;
}

impl VectorDb {
    /// The store that this describes.
    pub fn store(&self) -> Box<dyn VectorStore + '_> {
        match self.kind {
            VectorDbType::Pgvector => Box::new(pgvector::Pgvector(self)),
            VectorDbType::Memory => Box::new(memory::Memory(self)),
        }
    }
}
