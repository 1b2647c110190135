//! HNSW indexes: which tables want one, and the statements that build it.

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

/// Those of these tables, or of all, whose HNSW index is missing or invalid.
pub fn unindexed(only: Option<&[VectorDb]>) -> Result<Vec<Unindexed>> {
    let names: Vec<String> = only.unwrap_or_default().iter().map(|table| table.table_name.clone()).collect();
    let waiting = "(SELECT FROM kb.jobs j JOIN kb.builds o USING (kb_no)
                    WHERE o.table_name = b.table_name AND o.state <> 'old'";
    let sql = format!(
        "SELECT DISTINCT ON (b.table_name) {}, coalesce(NOT i.indisvalid, false),
                EXISTS {waiting}) AND NOT EXISTS {waiting} AND j.queued_at < now() - '{FILLING}'::interval),
                t.oid::bigint
         FROM kb.builds b
         JOIN pg_catalog.pg_class t ON t.relname = b.table_name AND t.relnamespace = 'kb'::regnamespace
         LEFT JOIN pg_catalog.pg_class x ON x.relname = b.table_name || '_hnsw' AND x.relnamespace = t.relnamespace
         LEFT JOIN pg_catalog.pg_index i ON i.indexrelid = x.oid AND i.indrelid = t.oid
         WHERE b.state <> 'old' AND b.type = 'pgvector' AND i.indisvalid IS DISTINCT FROM true
           AND ($1 OR b.table_name = ANY ($2))
         ORDER BY b.table_name",
        VectorDb::columns("b")
    );
    spi::write(&sql, &[Arg::Bool(only.is_none()), Arg::Texts(&names)], |row| {
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
