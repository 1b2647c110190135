//! Vectors in an unlogged table without an index, for development: it is quick to write, and a crash empties
//! it.

use super::VectorDb;
use super::table::VectorTable;

pub struct Memory<'a>(pub &'a VectorDb);

impl VectorTable for Memory<'_> {
    const UNLOGGED: bool = true;

    fn vector_db(&self) -> &VectorDb {
        self.0
    }
}
