//! Vectors in an ordinary table, which gets HNSW indexes (index.rs).

use super::VectorDb;
use super::table::VectorTable;

pub struct Pgvector<'a>(pub &'a VectorDb);

impl VectorTable for Pgvector<'_> {
    const UNLOGGED: bool = false;

    fn vector_db(&self) -> &VectorDb {
        self.0
    }
}
