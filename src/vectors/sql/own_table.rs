//! Large builds of a table that several builds share move to tables of their own, which have indexes of their
//! own. The rest stays small enough to be scanned exactly, so that no answer waits because of the vectors of
//! others.

use super::VectorDb;
use super::segments::IS_INDEXED;
use super::tail;
use crate::pg::spi::{self, Arg, FromRow, Row};
use crate::pg::statement_arguments::Arguments;
use kb_types::VectorDbConfig;
use kb_types::error::Result;

/// Whether other knowledge bases use the table of a kb.builds b.
pub const IS_SHARED: &str = "EXISTS (SELECT FROM kb.builds o
    WHERE o.table_name = b.table_name AND o.kb_no <> b.kb_no AND o.state <> 'old')";

/// Builds with more vectors stay, because a move keeps deletions waiting. Such a build had an index before
/// others joined its table.
const MOST: i64 = 100_000;

/// What to do with a build that got vectors.
#[derive(Debug, PartialEq)]
pub enum Size {
    /// It stays where it is for now.
    Small,
    /// It is large, no other build uses its table, and the table has no index yet.
    Alone,
    /// In a table of its own it would have an index. This is the table that it shares.
    Outgrown(VectorDb),
}

/// The size of a build in a table that other builds may share. For the worker.
pub fn size(build_no: i64) -> Result<Size> {
    let found = spi::write_one(
        &format!(
            "SELECT {}, {IS_SHARED} AS is_shared, {IS_INDEXED} AS is_indexed
             FROM kb.builds b
             WHERE b.build_no = $1 AND NOT b.owns_table AND b.state <> 'old' AND b.type = 'pgvector'",
            VectorDb::columns("b")
        ),
        &[Arg::Long(build_no)],
        |row| Ok((VectorDb::from_row(row)?, row.get::<bool>("is_shared")?, row.get::<bool>("is_indexed")?)),
    )?;
    let Some((table, is_shared, is_indexed)) = found else { return Ok(Size::Small) };
    let least = table.config.min_rows.max(1) as i64;
    let count = |most: i64| -> Result<i64> {
        spi::write_value(
            &format!("SELECT count(*) FROM (SELECT FROM {} WHERE build_no = $1 LIMIT $2) t", table.table()),
            &[Arg::Long(build_no), Arg::Long(most)],
        )
    };
    if count(least)? < least {
        return Ok(Size::Small);
    }
    if !is_shared {
        return Ok(if is_indexed { Size::Small } else { Size::Alone });
    }
    Ok(if count(MOST + 1)? <= MOST { Size::Outgrown(table) } else { Size::Small })
}

/// Moves a build out of its shared table. Returns None if the build no longer uses that table, or is being
/// dropped. Returns an error if a transaction that writes chunks does not end soon, because no other
/// transaction may write chunks until this one ends. For the worker.
pub fn move_out(build_no: i64, shared: &VectorDb) -> Result<Option<VectorDb>> {
    // A drop of the knowledge base locks its row first, and then its tables.
    let is_there = spi::write_one(
        "SELECT true FROM kb.knowledge_bases k JOIN kb.builds b USING (kb_no)
         WHERE b.build_no = $1 AND NOT b.owns_table AND b.state <> 'old' FOR KEY SHARE OF k FOR NO KEY UPDATE OF b",
        &[Arg::Long(build_no)],
        Row::only::<bool>,
    )?;
    if is_there.is_none() {
        return Ok(None);
    }
    // The lock is taken before the work, not after it: a deletion of a chunk deletes its vector from either
    // table.
    spi::execute_utility("LOCK TABLE kb.chunks IN SHARE ROW EXCLUSIVE MODE")?;
    let config = VectorDbConfig { table: None, ..shared.config.clone() };
    let own = VectorDb { table_name: format!("vectors_{build_no}"), config, ..shared.clone() };
    own.create_unchecked()?;
    let columns = "chunk_id, build_no, kb_no, tenant_id, fingerprint, embedding";
    for sql in [
        format!(
            "INSERT INTO {} ({columns}) SELECT {columns} FROM {} WHERE build_no = $1",
            own.table(),
            shared.table()
        ),
        format!("DELETE FROM {} WHERE build_no = $1", shared.table()),
    ] {
        spi::execute(&sql, &[Arg::Long(build_no)])?;
    }
    own.check_vectors()?;
    let mut arguments = Arguments::default();
    let build = arguments.add(Arg::Long(build_no));
    spi::execute(
        &format!(
            "UPDATE kb.builds SET owns_table = true, ({}) = ROW ({}) WHERE build_no = {build}",
            VectorDb::inserted(),
            own.values(&mut arguments)
        ),
        &arguments.all(),
    )?;
    // The vectors that were moved have number 0.
    tail::begin(build_no, 1)?;
    Ok(Some(own))
}
