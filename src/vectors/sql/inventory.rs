//! The vector tables that exist, from the rows of kb.builds and kb.vector_dbs.

use super::VectorDb;
use super::policies::replace_policies;
use super::progress::{self, IndexProgress};
use super::table::{add_segments, attach, checks_vectors};
use super::tail;
use crate::pg::spi::{self, Arg, FromRow, Row, quote};
use crate::pg::{role, setting, txn};
use kb_types::error::Result;
use uuid::Uuid;

/// The number of vectors of a build. It is 0 if the caller may not see the build, or if its store is gone or
/// cannot be read. Works on a standby.
pub fn count(build_no: i64) -> Result<i64> {
    let vector_db = of_build(build_no)?;
    vector_db.map_or(Ok(0), |vector_db| vector_db.store().count(build_no))
}

/// The number of segments of a build's table that have an index, and the number of the build's vectors that
/// no index has. Otherwise like [`count`].
pub fn index_state(build_no: i64) -> Result<(i64, i64)> {
    let vector_db = of_build(build_no)?;
    vector_db.map_or(Ok((0, 0)), |vector_db| vector_db.store().index_state(build_no))
}

/// The index that is being built on the table of a build, if the caller may see the build; see
/// [`IndexProgress`].
pub fn index_progress(build_no: i64) -> Result<Option<IndexProgress>> {
    match of_build(build_no)? {
        Some(vector_db) => role::as_owner(|| progress::of(&vector_db, build_no)),
        None => Ok(None),
    }
}

/// Deletes the vectors of chunks that were deleted. For the trigger of kb.chunks.
pub fn delete_of_chunks(build_no: i64, chunk_ids: &[Uuid]) -> Result<()> {
    // The build is read as it is now, because it may have moved to another table since this transaction
    // began. If it is gone, so are its vectors (`delete_of_build`).
    match txn::with_latest_snapshot(|| of_build(build_no))? {
        Some(vector_db) => vector_db.store().delete(build_no, Some(chunk_ids)),
        None => Ok(()),
    }
}

/// Deletes the vectors of a build that was deleted. For the trigger of kb.builds.
pub fn delete_of_build(build_no: i64, table_name: &str) -> Result<()> {
    let vector_db = VectorDb { table_name: table_name.to_string(), ..VectorDb::of_build(build_no, 1)? };
    vector_db.store().delete(build_no, None)
}

fn of_build(build_no: i64) -> Result<Option<VectorDb>> {
    spi::read_one(
        &format!("SELECT {} FROM kb.builds b WHERE b.build_no = $1", VectorDb::columns("b")),
        &[Arg::Long(build_no)],
        VectorDb::from_row,
    )
}

/// The tables that belong to single builds of a knowledge base. Must run as the owner, under the caller's
/// snapshot.
pub fn owned(kb_no: i64) -> Result<Vec<VectorDb>> {
    spi::read(
        &format!("SELECT {} FROM kb.builds b WHERE b.kb_no = $1 AND b.owns_table", VectorDb::columns("b")),
        &[Arg::Long(kb_no)],
        VectorDb::from_row,
    )
}

impl VectorDb {
    /// The number of builds of any tenant that have vectors in it. Must run as the owner.
    pub fn builds(&self) -> Result<i64> {
        spi::write_value(
            "SELECT count(*) FROM kb.builds WHERE table_name = $1",
            &[Arg::Text(&self.table_name)],
        )
    }
}

/// Descriptions of vector tables that are missing, or that are not as they were made, of knowledge bases that
/// the caller can see. Works on a standby.
pub fn lost() -> Result<Vec<String>> {
    spi::read(
        &format!(
            "SELECT DISTINCT pg_catalog.format('table kb.%I of knowledge base \"%s\" %s', b.table_name, k.id,
                 CASE WHEN t.oid IS NULL THEN 'is gone' ELSE 'has no trigger vector_written: a restore has not ended, or it was dropped' END)
             FROM kb.builds b JOIN kb.knowledge_bases k USING (kb_no)
             LEFT JOIN pg_catalog.pg_class t ON t.relname = b.table_name AND t.relnamespace = 'kb'::regnamespace
             WHERE b.state = 'live' AND (t.oid IS NULL OR t.relkind = 'r' AND NOT {})
             ORDER BY 1 LIMIT 5",
            checks_vectors("t.oid")
        ),
        &[],
        Row::only,
    )
}

/// Vector tables t in use that DROP EXTENSION would leave: those of a restore.
const UNATTACHED: &str = "FROM pg_catalog.pg_class t
     WHERE t.relnamespace = 'kb'::regnamespace
       AND (EXISTS (SELECT FROM kb.builds b WHERE b.table_name = t.relname::text COLLATE pg_catalog.\"default\")
            OR EXISTS (SELECT FROM kb.vector_dbs v WHERE v.table_name = t.relname::text COLLATE pg_catalog.\"default\"))
       AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_class'::regclass
           AND d.objid = t.oid AND d.refclassid = 'pg_extension'::regclass)";

/// Vector tables whose builds were deleted; the deletion has emptied them. For the worker.
pub fn unused() -> Result<Vec<String>> {
    spi::write(
        "SELECT t.relname::text FROM pg_catalog.pg_class t
         WHERE t.relnamespace = 'kb'::regnamespace AND t.relkind = 'r' AND t.relname ~ '^vectors_[0-9]+$'
           AND NOT EXISTS (SELECT FROM kb.builds b WHERE b.table_name = t.relname::text COLLATE pg_catalog.\"default\")
           AND NOT EXISTS (SELECT FROM kb.vector_dbs v WHERE v.table_name = t.relname::text COLLATE pg_catalog.\"default\")
           AND EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_class'::regclass
               AND d.objid = t.oid AND d.refclassid = 'pg_extension'::regclass)
         ORDER BY t.oid LIMIT 100",
        &[],
        Row::only,
    )
}

/// Drops one of them, with objects that others made on it. Returns an error (55P03) if a session has it
/// locked for longer than 20 ms.
pub fn drop_unused(table_name: &str) -> Result<()> {
    let settings = [(c"lock_timeout", c"20ms"), (c"client_min_messages", c"warning")];
    setting::with(&settings, || {
        spi::execute_utility(&format!("DROP TABLE IF EXISTS kb.{} CASCADE", quote(table_name)))
    })
}

/// Makes DROP EXTENSION drop the vector tables that it would leave, and lets queries read them under this
/// version's policies. Vectors that are written from now on are packed. Returns whether there are any such
/// tables.
pub fn attach_restored() -> Result<bool> {
    let unattached: Vec<String> =
        spi::write(&format!("SELECT t.relname::text {UNATTACHED}"), &[], Row::only)?;
    unattached.iter().try_for_each(|table_name| {
        add_segments(table_name)?;
        replace_policies(table_name)?;
        attach(table_name)?;
        tail::begin_restored(table_name)
    })?;
    Ok(!unattached.is_empty())
}

/// Whether a restore has not ended yet: it creates triggers and then, last, policies, in the order of their
/// names. (In an earlier development version the last one was tenant_write.)
pub fn is_being_restored() -> Result<bool> {
    spi::write_value(
        &format!(
            "SELECT EXISTS (SELECT {UNATTACHED} AND t.relkind = 'r' AND NOT (t.relrowsecurity
                 AND {}
                 AND EXISTS (SELECT FROM pg_catalog.pg_policy p WHERE p.polrelid = t.oid
                             AND p.polname IN ('tenant_update', 'tenant_write'))))",
            checks_vectors("t.oid")
        ),
        &[],
    )
}

impl VectorDb {
    /// The condition of [`VectorDb::is_readable`], for a statement in which `alias` has the columns of a
    /// vector database.
    pub fn readable(alias: &str) -> String {
        format!(
            "pg_catalog.has_table_privilege('kb_vectors',
                 pg_catalog.to_regclass('kb.' || pg_catalog.quote_ident({alias}.table_name))::oid, 'SELECT')"
        )
    }

    /// Whether the role that reads vectors may read the table. A restore can have left its rights out.
    pub fn is_readable(&self) -> Result<bool> {
        let found = spi::read_one(
            &format!("SELECT {} FROM (SELECT $1 AS table_name) b", Self::readable("b")),
            &[Arg::Text(&self.table_name)],
            |row| Ok(row.only::<Option<bool>>()? != Some(false)),
        )?;
        Ok(found != Some(false))
    }
}
