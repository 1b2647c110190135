//! The foreign key of a vector table to kb.chunks, by which vectors go with their chunks. To make or drop it locks kb.chunks.

use super::VectorDb;
use crate::error::{Error, Result};
use crate::pg::spi::{self, Arg};
use crate::pg::subtransaction::in_subtransaction;
use crate::pg::{latch, report, setting};
use crate::store::BY_INDEX_UNPLANNED;
use std::time::Duration;
use uuid::Uuid;

/// How often a lock on kb.chunks is tried, and the pause between.
const ATTEMPTS: usize = 20;
const PAUSE: Duration = Duration::from_millis(100);

/// Does what locks kb.chunks against others. While that is waited for nobody begins to use it, so each attempt waits 20 ms at most; an
/// error (55P03) where somebody has it for longer than all of them.
pub(super) fn hardly_waiting(what: &str, vector_db: &VectorDb, work: impl Fn() -> Result<()>) -> Result<()> {
    for _ in 0..ATTEMPTS {
        match in_subtransaction(|| setting::with(&[(c"lock_timeout", c"20ms")], &work)) {
            Err(error) if error.is_lock() => {}
            done => return done,
        }
        latch::wait(PAUSE);
        report::check_interrupts();
    }
    Err(Error::locked(&format!(
        "cannot {what} table {}: an open transaction has used kb.chunks; try again when it has ended",
        vector_db.table()
    )))
}

impl VectorDb {
    /// Vectors go with their chunks from now on; those that are there are not checked. Nobody else writes or deletes chunks until the end
    /// of the transaction.
    pub fn add_foreign_key(&self) -> Result<()> {
        spi::execute_utility(&format!(
            "ALTER TABLE {} ADD FOREIGN KEY (build_no, chunk_id) REFERENCES kb.chunks (build_no, chunk_id) ON DELETE CASCADE NOT VALID",
            self.table()
        ))
    }

    /// Whether vectors go with their chunks.
    pub fn has_foreign_key(&self) -> Result<bool> {
        let found = spi::write_one(
            "SELECT true FROM pg_catalog.pg_constraint c
             WHERE c.conrelid = pg_catalog.to_regclass('kb.' || pg_catalog.quote_ident($1))::oid AND c.contype = 'f' LIMIT 1",
            &[Arg::Text(&self.table_name)],
            |row| row.get::<bool>(0),
        )?;
        Ok(found.is_some())
    }

    /// Deletes the vectors without a chunk among the next so many of a build after a chunk: the last of these, if there may be more.
    pub fn delete_orphans(&self, build_no: i64, after: Uuid, limit: usize) -> Result<Option<Uuid>> {
        let sql = format!(
            "WITH part AS MATERIALIZED (
                 SELECT chunk_id FROM {table} WHERE build_no = $1 AND chunk_id > ($2::uuid[])[1] ORDER BY chunk_id LIMIT $3),
             deleted AS (
                 DELETE FROM {table} v WHERE v.build_no = $1 AND v.chunk_id = ANY (ARRAY(
                     SELECT p.chunk_id FROM part p WHERE (SELECT true FROM kb.chunks c
                         WHERE c.build_no = $1 AND c.chunk_id = p.chunk_id) IS NULL)))
             SELECT p.chunk_id, pg_catalog.count(*) OVER () FROM part p ORDER BY p.chunk_id DESC LIMIT 1",
            table = self.table()
        );
        let arguments = [Arg::Long(build_no), Arg::Uuids(&[after]), Arg::Long(limit as i64)];
        let last = setting::with(BY_INDEX_UNPLANNED, || {
            spi::write_one(&sql, &arguments, |row| Ok((row.uuid(0)?, row.get::<i64>(1)?)))
        })?;
        Ok(last.filter(|(_, count)| *count >= limit as i64).map(|(last, _)| last))
    }
}
