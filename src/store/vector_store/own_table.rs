//! Large builds of a table that many share: they move to tables of their own, which have indexes of their own. What stays
//! is small enough to be scanned exactly, so that no answer waits for the vectors of others.

use super::VectorDb;
use super::table::{add_foreign_key, create_without_foreign_key};
use crate::error::Result;
use crate::model::VectorDbConfig;
use crate::pg::spi::{self, Arg};
use crate::store::arguments::Arguments;

/// Of kb.builds b: whether other knowledge bases use the same table.
pub(super) const IS_SHARED: &str = "EXISTS (SELECT FROM kb.builds o
    WHERE o.table_name = b.table_name AND o.kb_no <> b.kb_no AND o.state <> 'old')";

/// The shared table of a build that has so many vectors there that a table of its own would have an index; None for other
/// builds. By the worker.
pub fn outgrown(build_no: i64) -> Result<Option<VectorDb>> {
    let shared = spi::write_one(
        &format!(
            "SELECT {} FROM kb.builds b
             WHERE b.build_no = $1 AND NOT b.owns_table AND b.state <> 'old' AND b.type = 'pgvector' AND {IS_SHARED}",
            VectorDb::columns("b")
        ),
        &[Arg::Long(build_no)],
        |row| VectorDb::read(row, 0),
    )?;
    let Some(shared) = shared else { return Ok(None) };
    let least = shared.config.min_rows.max(1) as i64;
    let found = spi::write_one(
        &format!("SELECT count(*) FROM (SELECT FROM {} WHERE build_no = $1 LIMIT $2) t", shared.table()),
        &[Arg::Long(build_no), Arg::Long(least)],
        |row| row.get::<i64>(0),
    )?;
    Ok((found == Some(least)).then_some(shared))
}

/// Moves a build out of its shared table; None where it has no such table any more, or is being dropped. An error where
/// somebody who writes chunks does not end soon: until the end of the transaction nobody else may. By the worker.
pub fn move_out(build_no: i64, shared: &VectorDb) -> Result<Option<VectorDb>> {
    // Who drops the knowledge base locks its row first, and then its tables.
    let is_there = spi::write_one(
        "SELECT true FROM kb.knowledge_bases k JOIN kb.builds b USING (kb_no)
         WHERE b.build_no = $1 AND NOT b.owns_table AND b.state <> 'old' FOR KEY SHARE OF k FOR NO KEY UPDATE OF b",
        &[Arg::Long(build_no)],
        |row| row.get::<bool>(0),
    )?;
    if is_there.is_none() {
        return Ok(None);
    }
    // Before the work is done, not after it: a chunk that is deleted takes its vector with it, out of either table.
    spi::execute_utility("LOCK TABLE kb.chunks IN SHARE ROW EXCLUSIVE MODE")?;
    let config = VectorDbConfig { table: None, ..shared.config.clone() };
    let own = VectorDb { table_name: format!("vectors_{build_no}"), config, ..shared.clone() };
    create_without_foreign_key(&own, "")?;
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
    add_foreign_key(&own)?;
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
    Ok(Some(own))
}
