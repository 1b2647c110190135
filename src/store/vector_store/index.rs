//! HNSW indexes: which tables want one, and the statements that build it.

use super::own_table::IS_SHARED;
use super::{Health, VectorDb};
use crate::error::Result;
use crate::pg::spi::{self, Arg, quote};
use crate::store::server_catalogs::vector_schema;

/// As long as no document has waited for longer, a bulk build is better than one insertion after the other.
const FILLING: &str = "10 min";

/// A vector table whose index is missing or invalid.
#[derive(Debug, Clone, PartialEq)]
pub struct Unindexed {
    vector_db: VectorDb,
    /// Identifies the table for as long as it is there.
    pub oid: u32,
    /// There is an invalid one, which a failed build left behind.
    pub is_invalid: bool,
    /// Much is about to be written: the index is built when that is done, or has lasted for [`FILLING`].
    pub is_filling: bool,
}

/// Names of all tables that builds have: from one to the next, since many builds may share one.
const ALL_NAMES: &str = "WITH RECURSIVE a AS (
        (SELECT b.table_name AS name FROM kb.builds b ORDER BY b.table_name LIMIT 1)
        UNION ALL
        SELECT (SELECT b.table_name FROM kb.builds b WHERE b.table_name > a.name ORDER BY b.table_name LIMIT 1)
        FROM a WHERE a.name IS NOT NULL)
    SELECT a.name FROM a WHERE a.name IS NOT NULL";

/// Whether a job waits for a table: of the builds that have it for themselves, or, where many share it, of the queue.
fn waiting(condition: &str) -> String {
    format!(
        "CASE WHEN b.owns_table THEN EXISTS (
             SELECT FROM kb.builds o JOIN kb.jobs j USING (kb_no)
             WHERE o.table_name = n.name AND o.state <> 'old' AND {condition})
         ELSE EXISTS (
             SELECT FROM kb.jobs j WHERE {condition} AND (
                 SELECT pg_catalog.bool_or(o.table_name = n.name) FROM kb.builds o
                 WHERE o.kb_no = j.kb_no AND o.state <> 'old')) END"
    )
}

/// Those of these tables, or of all, whose HNSW index is missing or invalid; a table that several knowledge bases share has
/// none.
pub fn unindexed(only: Option<&[VectorDb]>) -> Result<Vec<Unindexed>> {
    let names: Vec<String> = only.unwrap_or_default().iter().map(|table| table.table_name.clone()).collect();
    let sql = format!(
        "SELECT {}, coalesce(NOT i.indisvalid, false), {} AND NOT {}, t.oid::bigint
         FROM ({}) n
         CROSS JOIN LATERAL (
             SELECT * FROM kb.builds b WHERE b.table_name = n.name AND b.state <> 'old' AND b.type = 'pgvector'
             LIMIT 1) b
         CROSS JOIN LATERAL (
             SELECT pg_catalog.to_regclass(pg_catalog.format('kb.%I', n.name))::oid AS oid,
                 pg_catalog.to_regclass(pg_catalog.format('kb.%I', n.name || '_hnsw'))::oid AS index_oid) t
         LEFT JOIN pg_catalog.pg_index i ON i.indexrelid = t.index_oid AND i.indrelid = t.oid
         WHERE t.oid IS NOT NULL AND i.indisvalid IS DISTINCT FROM true AND NOT {IS_SHARED}
         ORDER BY n.name",
        VectorDb::columns("b"),
        waiting("true"),
        waiting(&format!("j.queued_at < now() - '{FILLING}'::interval")),
        if only.is_some() { "SELECT u.name FROM pg_catalog.unnest($1::text[]) AS u (name)" } else { ALL_NAMES },
    );
    spi::write(&sql, &[Arg::Texts(&names)], |row| {
        let (is_invalid, is_filling) = (row.get(5)?, row.get(6)?);
        let oid = row.get::<i64>(7)? as u32;
        Ok(Unindexed { vector_db: VectorDb::read(row, 0)?, oid, is_invalid, is_filling })
    })
}

impl Unindexed {
    pub fn vector_db(&self) -> &VectorDb {
        &self.vector_db
    }

    /// Whether it has as many rows as its configuration asks for, without counting more.
    pub fn has_min_rows(&self) -> Result<bool> {
        let least = self.vector_db.config.min_rows.max(1) as i64;
        let sql = format!("SELECT count(*) FROM (SELECT FROM {} LIMIT $1) t", self.vector_db.table());
        let found = spi::write_one(&sql, &[Arg::Long(least)], |row| row.get::<i64>(0))?;
        Ok(found.unwrap_or(0) >= least)
    }

    /// Whether it is dropped, or somebody is about to drop it or has locked it: then an error of its index is no
    /// failure. The lock is looked at first, since a drop releases it only when the table is gone.
    pub fn is_going(&self) -> Result<bool> {
        Ok(self.is_locked_exclusively()? || self.vector_db.store().health()? == Health::Gone)
    }

    /// Its name, and those of up to three knowledge bases whose vectors it holds, for messages. By the worker.
    pub fn describe(&self) -> Result<String> {
        let ids: Vec<String> = spi::write(
            "SELECT DISTINCT pg_catalog.format('\"%s\"', k.id) FROM kb.builds b JOIN kb.knowledge_bases k USING (kb_no)
             WHERE b.table_name = $1 ORDER BY 1 LIMIT 3",
            &[Arg::Text(&self.vector_db.table_name)],
            |row| row.get(0),
        )?;
        Ok(format!("table kb.{} (knowledge base {})", self.vector_db.table_name, ids.join(", ")))
    }

    /// Whether somebody holds or awaits a lock on it that keeps all others out: a session that drops it, say.
    pub fn is_locked_exclusively(&self) -> Result<bool> {
        let found = spi::write_one(
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_class t ON t.oid = l.relation
             WHERE t.relname = $1 AND t.relnamespace = 'kb'::regnamespace
               AND l.mode = 'AccessExclusiveLock' AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()
               AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()))",
        &[Arg::Text(&self.vector_db.table_name)],
        |row| row.get::<bool>(0),
    )?;
        Ok(found.unwrap_or(false))
    }

    /// The statement that builds the index without blocking writers.
    pub fn create_statement(&self) -> Result<String> {
        let vector_db = &self.vector_db;
        Ok(format!(
            "CREATE INDEX CONCURRENTLY {} ON {} USING hnsw (embedding {}.{}) WITH (m = {}, ef_construction = {})",
            quote(&self.index_name()),
            vector_db.table(),
            vector_schema()?,
            vector_db.metric.operator_class(vector_db.element),
            vector_db.config.m,
            vector_db.config.ef_construction
        ))
    }

    /// The statement that removes what a failed build left.
    pub fn drop_statement(&self) -> String {
        format!("DROP INDEX CONCURRENTLY IF EXISTS kb.{}", quote(&self.index_name()))
    }

    /// Gives the planner fresh statistics of what a query reads.
    pub fn analyze(&self) -> Result<()> {
        spi::execute_utility(&format!("ANALYZE kb.documents, kb.chunks, {}", self.vector_db.table()))
    }

    fn index_name(&self) -> String {
        format!("{}_hnsw", self.vector_db.table_name)
    }
}
