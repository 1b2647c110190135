//! The statements about vectors: vector tables, with a file for each concern, and kb.vector_dbs.

mod analyze;
mod description;
pub mod grants;
pub mod hnsw;
mod inventory;
mod memory;
mod missing;
mod move_vectors;
mod nearest;
mod own_table;
mod pgvector;
mod policies;
mod progress;
mod sample;
mod search_by_index;
mod segments;
mod table;
pub mod tail;
pub mod vector_dbs;

pub use crate::vectors::sql::description::VectorDb;
pub use analyze::refresh as refresh_statistics;
pub use inventory::{
    attach_restored, count, delete_of_build, delete_of_chunks, drop_unused, index_progress, index_state,
    is_being_restored, lost, owned, unused,
};
pub use move_vectors::move_vectors;
pub use nearest::{Scan, VectorSearch};
pub use own_table::{Size, move_out, size};
pub use segments::{Searched, unindexed};

use kb_types::error::Result;
use kb_types::{Missing, VectorDbType};
use std::collections::{HashMap, HashSet};
use uuid::Uuid;

/// Whether a store can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    Ready,
    /// The table that held the vectors was dropped, or has not been created.
    Gone,
    /// It exists and cannot be read now: an unlogged table on a standby.
    Unreadable,
}

/// The place that holds the vectors of one build or of several. Chunks and documents are always rows of
/// kb.chunks and kb.documents, which decide what exists and who may read it: a vector whose chunk is gone is
/// in no answer.
pub trait VectorStore {
    /// Creates the store, which is empty. Must run as the owner.
    fn create(&self) -> Result<()>;

    /// Removes the store with all vectors in it. It is no error if the store is gone already. For the owner
    /// or the worker.
    fn remove(&self) -> Result<()>;

    /// Removes all vectors at once. It is no error if the store is gone. Sessions that use the store wait
    /// until the end of the transaction; no others do. For the owner or the worker.
    fn empty(&self) -> Result<()>;

    fn health(&self) -> Result<Health>;

    /// The number of vectors of a build that the caller's tenant has there, which is 0 unless the store is
    /// ready. Works on a standby.
    fn count(&self, build_no: i64) -> Result<i64>;

    /// Writes vectors of chunks; `numbers` holds them one after the other. Chunks that were deleted
    /// meanwhile, or that an open transaction is deleting, are skipped; the others are returned.
    fn write(
        &self,
        build_no: i64,
        fingerprint: i64,
        chunk_ids: &[Uuid],
        numbers: &[f32],
    ) -> Result<HashSet<Uuid>>;

    /// Does what [`VectorStore::write`] does for all of these chunks of a knowledge base, each with its
    /// tenant, at a fraction of the cost. Returns an error, after which the transaction must be aborted, if a
    /// chunk was deleted meanwhile, belongs to another tenant or has a vector, or if a wait for a lock takes
    /// too long. Returns false, and does nothing, if the trigger that would detect this is missing.
    fn write_all(
        &self,
        build_no: i64,
        kb_no: i64,
        fingerprint: i64,
        chunks: &[(Uuid, &str)],
        numbers: &[f32],
    ) -> Result<bool>;

    /// Deletes the vectors of chunks of a build that this transaction has deleted, or of all its chunks; the
    /// triggers of kb.chunks and kb.builds call this. Returns a serialization failure if there are vectors
    /// that the transaction's snapshot does not show.
    fn delete(&self, build_no: i64, chunk_ids: Option<&[Uuid]>) -> Result<()>;

    /// Begins a search for the nearest chunks. Vectors are read as a role of kb's own, because callers have
    /// no right to read them; before a caller sees anything of a chunk, its row is read as the caller.
    /// `searched` names what a scan by index reads, or is None if there is no index.
    fn search<'a>(&self, search: &VectorSearch<'a>, searched: Option<&Searched>) -> Result<Scan<'a>>;

    /// What a search by index reads, or None if there is no index, so that every search is exact.
    fn searched(&self) -> Result<Option<Searched>>;

    /// The number of segments that have an index, and the number of vectors of a build that no index has.
    /// Otherwise like [`VectorStore::count`].
    fn index_state(&self, build_no: i64) -> Result<(i64, i64)>;

    /// The similarity of a vector to the vectors of these chunks, read as in [`VectorStore::search`]. Chunks
    /// without a vector are left out.
    fn similarities(&self, build_no: i64, vector: &[f32], chunk_ids: &[Uuid]) -> Result<HashMap<Uuid, f64>>;

    /// Chunks of a build chosen at random, with their vectors, read as in [`VectorStore::search`].
    fn sample(&self, build_no: i64, most: i64) -> Result<Vec<(Uuid, Vec<f32>)>>;

    /// The vectors of these chunks, read as in [`VectorStore::search`]. Chunks without a vector are left out.
    fn vectors(&self, build_no: i64, chunk_ids: &[Uuid]) -> Result<HashMap<Uuid, Vec<f32>>>;

    /// The vectors of these chunks, of whatever tenant, for the worker. Chunks without a vector are left out.
    fn all_vectors(&self, build_no: i64, chunk_ids: &[Uuid]) -> Result<HashMap<Uuid, Vec<f32>>>;

    /// The next chunks of documents that have no vector yet, by document and ordinal, after `after`.
    fn missing(
        &self,
        build_no: i64,
        document_ids: &[i64],
        after: (i64, i32),
        limit: i64,
    ) -> Result<Vec<Missing>>;

    /// The documents of a knowledge base whose status is ready, but which have no chunk in the build, or one
    /// without a vector.
    fn incomplete(&self, kb_no: i64, build_no: i64) -> Result<Vec<i64>>;

    /// Of these chunks, none of which has a vector: those whose text now has a vector elsewhere in the build.
    fn with_equal_text(&self, build_no: i64, fingerprint: i64, chunk_ids: &[Uuid]) -> Result<Vec<Uuid>>;

    /// Those of these chunks that have a vector.
    fn among_those_with_vectors(&self, build_no: i64, chunk_ids: &[Uuid]) -> Result<HashSet<Uuid>>;

    /// Copies vectors to chunks of these documents that have none yet, from chunks with the same text under
    /// the same fingerprint elsewhere in the knowledge base, in this build or in `lender` (the live one).
    /// Returns the number of chunks that got one.
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
