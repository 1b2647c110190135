//! kb.tails and kb.tail_vectors: the vectors of a build's own table that no index has yet, rounded to 4 bits
//! and packed, so that a question reads a seventh of their bytes, and in sequence. A packed vector only tells
//! how near the vector may be; the vector itself is then read and compared, under the caller's policies. A
//! chunk that is gone may still be packed, but is not found any more.
//!
//! kb.tails holds the number from which on all vectors of a build are packed. Its row and the blocks are
//! written in the transactions that write and index the vectors, so that a snapshot that sees a vector from
//! that number on sees its block, too. Neither table is dumped: restored vectors are not packed, and are
//! compared whole until they have an index.

use super::VectorDb;
use super::segments::behind;
use crate::pg::index_lookup::{self, Key};
use crate::pg::row_bytes;
use crate::pg::spi::{self, Arg, FromRow, Row};
use crate::settings;
use crate::tenants::shares;
use foldhash::HashMap;
use kb_search::packed_vectors;
use kb_search::packed_vectors::{NearestPacked, PackedQuery, Packer, block_size, entry_size};
use kb_types::error::Result;
use uuid::Uuid;

/// The build that has the table $1 for itself.
const OWN: &str = "(SELECT b.build_no FROM kb.builds b WHERE b.table_name = $1 AND b.owns_table LIMIT 1)";

/// This many vectors of chunks that are gone may stay packed, in addition to as many as there are others.
const MOST_GONE: u64 = 2_000;

/// The approximate limit of vectors of a table that have no index. They are packed if the table belongs to
/// one build.
pub fn most_rows(vector_db: &VectorDb, is_packed: bool) -> u64 {
    settings::forced_tail().unwrap_or_else(|| packed_vectors::most_rows(vector_db.dimension, is_packed))
}

/// Declares that all vectors of a build from this number on are packed. For the owner or the worker, when
/// only a transaction that sees this row can write such vectors.
pub fn begin(build_no: i64, first: i32) -> Result<()> {
    spi::execute(
        "INSERT INTO kb.tails (build_no, first) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        &[Arg::Long(build_no), Arg::Int(first)],
    )?;
    Ok(())
}

/// Begins to pack the vectors of a table that a restore has brought, if it belongs to one build. For the
/// worker.
pub fn begin_restored(table_name: &str) -> Result<()> {
    let sql = format!(
        "SELECT {}, b.build_no FROM kb.builds b
         WHERE b.table_name = $1 AND b.owns_table AND b.state <> 'old' AND b.type = 'pgvector'",
        VectorDb::columns("b")
    );
    let row = |row: &Row| Ok((VectorDb::from_row(row)?, row.get::<i64>("build_no")?));
    let Some((vector_db, build_no)) = spi::write_one(&sql, &[Arg::Text(table_name)], row)? else {
        return Ok(());
    };
    let last = behind(&vector_db, i32::MAX, 0)?.map_or(-1, |(_, last)| last);
    begin(build_no, last + 1)
}

/// A vector that was written.
pub struct WrittenVector<'a> {
    pub tenant_id: String,
    pub chunk_id: Uuid,
    pub vector: &'a [f32],
}

/// Packs vectors of a build that were written in this transaction with this number. Those of each tenant are
/// packed apart, so that no tenant reads what others have. Vectors are packed only after [`begin`], and from
/// that number on.
pub fn write<'a>(
    vector_db: &VectorDb,
    build_no: i64,
    number: i32,
    vectors: impl Iterator<Item = WrittenVector<'a>>,
) -> Result<()> {
    let full = block_size(vector_db.dimension) * entry_size(vector_db.dimension);
    let packer = Packer::new(vector_db.dimension, vector_db.element);
    let (mut tenants, mut blocks): (Vec<String>, Vec<Vec<u8>>) = (Vec::new(), Vec::new());
    // The last block of each tenant.
    let mut last: HashMap<String, usize> = HashMap::default();
    for WrittenVector { tenant_id, chunk_id, vector } in vectors {
        let at = match last.get(&tenant_id) {
            Some(at) if blocks[*at].len() < full => *at,
            _ => {
                blocks.push(Vec::with_capacity(full));
                tenants.push(tenant_id.clone());
                last.insert(tenant_id, blocks.len() - 1);
                blocks.len() - 1
            }
        };
        packer.pack(&mut blocks[at], chunk_id, vector);
    }
    if blocks.is_empty() {
        return Ok(());
    }
    spi::execute(
        "INSERT INTO kb.tail_vectors (build_no, tenant_id, segment, packed)
         SELECT $1, u.tenant_id, $2, u.packed FROM unnest($3::text[], $4::bytea[]) AS u (tenant_id, packed)",
        &[Arg::Long(build_no), Arg::Int(number), Arg::Texts(&tenants), Arg::BytesArray(&blocks)],
    )?;
    Ok(())
}

/// Removes packed vectors up to this number, because an index has them now. For the indexer.
pub fn forget(vector_db: &VectorDb, last: i32) -> Result<()> {
    set_first(vector_db, last.saturating_add(1), "t.first <= $2", "v.segment < $2")
}

/// Sets the number from which on vectors are packed if `is_due`, and deletes those that `are_gone`. Does
/// nothing if a session is dropping the build.
fn set_first(vector_db: &VectorDb, first: i32, is_due: &str, are_gone: &str) -> Result<()> {
    let sql = format!(
        "WITH own AS MATERIALIZED (
             SELECT t.build_no FROM kb.tails t WHERE t.build_no = {OWN} AND {is_due}
             FOR NO KEY UPDATE OF t SKIP LOCKED),
         gone AS (
             DELETE FROM kb.tail_vectors v WHERE v.build_no = {OWN} AND {are_gone} AND EXISTS (SELECT FROM own))
         UPDATE kb.tails t SET first = $2 WHERE t.build_no = {OWN} AND EXISTS (SELECT FROM own)"
    );
    spi::execute(&sql, &[Arg::Text(&vector_db.table_name), Arg::Int(first)])?;
    Ok(())
}

/// Unpacks everything if many of the packed vectors belong to chunks that are gone. For the worker, while it
/// does not write vectors.
pub fn tidy(vector_db: &VectorDb) -> Result<()> {
    let sql = format!(
        "SELECT t.first, (SELECT sum(pg_catalog.length(v.packed)) FROM kb.tail_vectors v
                          WHERE v.build_no = t.build_no AND v.segment >= t.first) AS bytes
         FROM kb.tails t WHERE t.build_no = {OWN}"
    );
    let row = |row: &Row| Ok((row.get::<i32>("first")?, row.get::<Option<i64>>("bytes")?));
    let Some((first, bytes)) = spi::write_one(&sql, &[Arg::Text(&vector_db.table_name)], row)? else {
        return Ok(());
    };
    let packed = bytes.unwrap_or(0) as u64 / entry_size(vector_db.dimension) as u64;
    let (rows, last) = behind(vector_db, first.saturating_sub(1), packed.max(1))?.unwrap_or((0, -1));
    if packed > 2 * rows + MOST_GONE {
        // Vectors that are written next have this number or a larger one.
        set_first(vector_db, first.max(last + 1), "true", "true")?;
    }
    Ok(())
}

/// The packed vectors of a build, and a question.
pub struct Tail {
    build_no: i64,
    /// All vectors from this number on are packed.
    pub first: i32,
    question: PackedQuery,
}

impl Tail {
    /// Returns None if the vectors of this build are not packed.
    pub fn of(vector_db: &VectorDb, build_no: i64, vector: &[f32]) -> Option<Tail> {
        let first = index_lookup::number(c"tails", c"tails_pkey", &[Key::Long(build_no)], c"first")??;
        Some(Tail {
            build_no,
            first,
            question: PackedQuery::new(vector, vector_db.metric, vector_db.element),
        })
    }

    /// The candidates among the packed chunks of a knowledge base from number `from` on, of tenants whose
    /// documents the caller may read there: `most` or more of them, in the order of the lower bounds of their
    /// distances, which stand beside them, and a lower bound of the distance of all others. Returns None if
    /// this snapshot cannot use the packed vectors.
    pub fn nearest(&self, kb_no: i64, from: i32, most: usize) -> Result<Option<Near>> {
        let mut nearest = NearestPacked::new(&self.question, most);
        let key = [Key::Long(self.build_no), Key::AtLeast(from.max(self.first))];
        let (tenants, table, index) = (shares::readable(kb_no)?, c"tail_vectors", c"tail_vectors_segment");
        let is_read =
            row_bytes::each(&tenants, table, index, &key, c"packed", |block, next| nearest.add(block, next));
        Ok(is_read.then(|| nearest.sorted()))
    }
}

/// See [`NearestPacked::sorted`].
pub type Near = (Vec<(f64, Uuid)>, f64);
