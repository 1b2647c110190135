//! kb.tails and kb.tail_vectors: the vectors of a build's own table that no index has yet, rounded to 4 bits and packed, so that a
//! question reads a seventh of their bytes, and in order. What they say of a vector is only how near it may be: the vector
//! itself is then read and compared, under the caller's policies. A chunk that is gone may still be packed; it is found no more.
//!
//! kb.tails says from which number on all vectors of a build are packed. Its row and the blocks are written in the transactions that
//! write and index the vectors, so that a snapshot that sees a vector from that number on sees its block, too. Neither is dumped: what
//! a restore brings is packed no more, and compared whole until it has an index.

use super::VectorDb;
use super::segments::behind;
use crate::pg::probe::{self, Key};
use crate::pg::row_bytes;
use crate::pg::spi::{self, Arg};
use crate::settings;
use crate::tenants::shares;
use foldhash::HashMap;
use kb_search::tail;
use kb_search::tail::{Nearest, Packer, Question, block_size, entry_size};
use kb_types::error::Result;
use uuid::Uuid;

/// The build that has the table $1 to itself.
const OWN: &str = "(SELECT b.build_no FROM kb.builds b WHERE b.table_name = $1 AND b.owns_table LIMIT 1)";

/// So many vectors of chunks that are gone may stay packed, and as many as there are others.
const MOST_GONE: u64 = 2_000;

/// Vectors of a table at most, about, that have no index; they are packed where the table is a build's own.
pub fn most_rows(vector_db: &VectorDb, is_packed: bool) -> u64 {
    settings::forced_tail().unwrap_or_else(|| tail::most_rows(vector_db.dimension, is_packed))
}

/// All vectors of a build from this number on are packed. As the owner or the worker, when none of these can be written but by a
/// transaction that sees this.
pub fn begin(build_no: i64, first: i32) -> Result<()> {
    spi::execute(
        "INSERT INTO kb.tails (build_no, first) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        &[Arg::Long(build_no), Arg::Int(first)],
    )?;
    Ok(())
}

/// Begins to pack those of a table that a restore has brought, if it is a build's own. By the worker.
pub fn begin_restored(table_name: &str) -> Result<()> {
    let sql = format!(
        "SELECT {}, b.build_no FROM kb.builds b
         WHERE b.table_name = $1 AND b.owns_table AND b.state <> 'old' AND b.type = 'pgvector'",
        VectorDb::columns("b")
    );
    let row = |row: &spi::Row| Ok((VectorDb::read(row, 0)?, row.get::<i64>(5)?));
    let Some((vector_db, build_no)) = spi::write_one(&sql, &[Arg::Text(table_name)], row)? else {
        return Ok(());
    };
    let last = behind(&vector_db, i32::MAX, 0)?.map_or(-1, |(_, last)| last);
    begin(build_no, last + 1)
}

/// A vector that was written.
pub struct Written<'a> {
    pub tenant_id: String,
    pub chunk_id: Uuid,
    pub vector: &'a [f32],
}

/// Packs vectors of a build that were written in this transaction with this number: those of each tenant apart, so that nobody reads
/// what others have. Only where [`begin`] was, and from that number on.
pub fn write<'a>(
    vector_db: &VectorDb,
    build_no: i64,
    number: i32,
    vectors: impl Iterator<Item = Written<'a>>,
) -> Result<()> {
    let full = block_size(vector_db.dimension) * entry_size(vector_db.dimension);
    let packer = Packer::new(vector_db.dimension, vector_db.element);
    let (mut tenants, mut blocks): (Vec<String>, Vec<Vec<u8>>) = (Vec::new(), Vec::new());
    // The last block of each.
    let mut last: HashMap<String, usize> = HashMap::default();
    for Written { tenant_id, chunk_id, vector } in vectors {
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

/// What has an index need not be packed: all up to this number. By the indexer.
pub fn forget(vector_db: &VectorDb, last: i32) -> Result<()> {
    set_first(vector_db, last.saturating_add(1), "t.first <= $2", "v.segment < $2")
}

/// Packed are the vectors from this number on, where that `is_due`; those that `are_gone` are deleted. Where somebody is dropping the build, nothing is done.
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

/// Where many chunks are gone that are still packed, nothing stays packed that was. By the worker, when it is not writing vectors.
pub fn tidy(vector_db: &VectorDb) -> Result<()> {
    let sql = format!(
        "SELECT t.first, (SELECT sum(pg_catalog.length(v.packed)) FROM kb.tail_vectors v
                          WHERE v.build_no = t.build_no AND v.segment >= t.first)
         FROM kb.tails t WHERE t.build_no = {OWN}"
    );
    let row = |row: &spi::Row| Ok((row.get::<i32>(0)?, row.opt::<i64>(1)?));
    let Some((first, bytes)) = spi::write_one(&sql, &[Arg::Text(&vector_db.table_name)], row)? else {
        return Ok(());
    };
    let packed = bytes.unwrap_or(0) as u64 / entry_size(vector_db.dimension) as u64;
    let (rows, last) = behind(vector_db, first.saturating_sub(1), packed.max(1))?.unwrap_or((0, -1));
    if packed > 2 * rows + MOST_GONE {
        // What is written next has this number or a larger one.
        set_first(vector_db, first.max(last + 1), "true", "true")?;
    }
    Ok(())
}

/// The packed vectors of a build, and a question.
pub struct Tail {
    build_no: i64,
    /// From this number on all are packed.
    pub first: i32,
    question: Question,
}

impl Tail {
    /// None: this build's vectors are not packed.
    pub fn of(vector_db: &VectorDb, build_no: i64, vector: &[f32]) -> Option<Tail> {
        let first = probe::number(c"tails", c"tails_pkey", &[Key::Long(build_no)], c"first")??;
        Some(Tail { build_no, first, question: Question::new(vector, vector_db.metric, vector_db.element) })
    }

    /// The chunks of a knowledge base, from this number on and of tenants whose documents there the caller may read, that may be
    /// nearest, with how far away they are at least, in that order, `most` or more of them; and how far away all others are at least.
    /// None: this snapshot cannot say.
    pub fn nearest(&self, kb_no: i64, from: i32, most: usize) -> Result<Option<Near>> {
        let mut nearest = Nearest::new(&self.question, most);
        let key = [Key::Long(self.build_no), Key::AtLeast(from.max(self.first))];
        let (tenants, table, index) = (shares::readable(kb_no)?, c"tail_vectors", c"tail_vectors_segment");
        let is_read =
            row_bytes::each(&tenants, table, index, &key, c"packed", |block, next| nearest.add(block, next));
        Ok(is_read.then(|| nearest.sorted()))
    }
}

/// See [`Nearest::sorted`].
pub type Near = (Vec<(f64, Uuid)>, f64);
