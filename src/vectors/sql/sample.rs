//! A sample of the vectors of a build, for measuring how much an index misses.

use super::VectorDb;
use crate::pg::role::as_vector_reader;
use crate::pg::spi::{self, Arg, Row};
use kb_types::error::Result;
use uuid::Uuid;

/// Chunks of a build chosen at random, with their vectors. The statement reads all ids, which takes as long
/// as counting them.
pub fn sample(vector_db: &VectorDb, build_no: i64, most: i64) -> Result<Vec<(Uuid, Vec<f32>)>> {
    let table = vector_db.table();
    let sql = format!(
        "SELECT v.chunk_id, v.embedding::real[] AS vector
         FROM (SELECT s.chunk_id FROM {table} s WHERE s.build_no = $1 ORDER BY pg_catalog.random() LIMIT $2) s
         JOIN {table} v ON v.build_no = $1 AND v.chunk_id = s.chunk_id"
    );
    let row = |row: &Row| Ok((row.get("chunk_id")?, row.get::<Vec<f32>>("vector")?));
    as_vector_reader(|| spi::read(&sql, &[Arg::Long(build_no), Arg::Long(most)], row))
}
