//! The server's own catalogs: extensions, versions, processes, and settings of other modules.

use crate::pg::row::from_row;
use crate::pg::spi::{self, Arg, FromRow, Row};
use crate::pg::vector;
use kb_types::error::{Error, Result};
use std::cell::Cell;

thread_local! {
    /// The oid of the type `vector` in this database, once it was looked up.
    static VECTOR: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The schema of pgvector, quoted, to qualify its types and operators. It is looked up each time, by the oid
/// of its type: once pgvector has moved, anybody who may create objects in the old schema can take the old
/// names.
pub fn vector_schema() -> Result<String> {
    if let Some(schema) = VECTOR.get().and_then(vector::schema_of) {
        return Ok(schema);
    }
    let found = spi::read_one(
        "SELECT t.oid::bigint AS oid, pg_catalog.quote_ident(n.nspname) AS schema FROM pg_catalog.pg_extension e
         JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace
         JOIN pg_catalog.pg_type t ON t.typnamespace = e.extnamespace AND t.typname = 'vector'
         WHERE e.extname = 'vector'",
        &[],
        |row| Ok((row.get::<u32>("oid")?, row.get::<String>("schema")?)),
    )?;
    let Some((oid, schema)) = found else {
        return Err(Error::State {
            problem: "extension vector is not installed in this database".into(),
            hint: "CREATE EXTENSION vector;".into(),
        });
    };
    VECTOR.set(Some(oid));
    Ok(schema)
}

/// If pgvector was moved to a schema that the role that reads vectors may not use: that schema, quoted, and
/// the statement that grants the right. Works on a standby.
pub fn vector_schema_without_usage() -> Result<Option<(String, String)>> {
    spi::read_one(
        "SELECT pg_catalog.quote_ident(n.nspname) AS schema,
                pg_catalog.format('GRANT USAGE ON SCHEMA %I TO kb_vectors;', n.nspname) AS statement
         FROM pg_catalog.pg_extension e
         JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace
         WHERE e.extname = 'vector' AND NOT pg_catalog.has_schema_privilege('kb_vectors', n.oid, 'USAGE')",
        &[],
        |row| Ok((row.get("schema")?, row.get("statement")?)),
    )
}

/// The version of an installed extension.
pub fn extension_version(name: &str) -> Result<Option<String>> {
    spi::read_one(
        "SELECT extversion FROM pg_catalog.pg_extension WHERE extname = $1",
        &[Arg::Text(name)],
        Row::only::<String>,
    )
}

from_row! {
    /// A process for whose transaction an index build of kb waits.
    pub struct BuildWait {
        pub pid: i32,
        /// How long its transaction has been open. None: the transaction has just ended.
        pub seconds: Option<i64>,
    }
}

/// The processes for which index builds of kb wait in this database. Must run as the owner, because the
/// processes of other roles are hidden otherwise. Works on a standby.
pub fn index_builds_that_wait() -> Result<Vec<BuildWait>> {
    spi::read(
        "SELECT p.current_locker_pid::int4 AS pid,
                pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() - a.xact_start)::bigint AS seconds
         FROM pg_catalog.pg_stat_progress_create_index p
         JOIN pg_catalog.pg_stat_activity i ON i.pid = p.pid AND i.backend_type = 'kb indexer'
         LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = p.current_locker_pid
         WHERE p.datname = pg_catalog.current_database() AND p.phase LIKE 'waiting%' AND p.current_locker_pid > 0
         ORDER BY seconds DESC NULLS LAST",
        &[],
        BuildWait::from_row,
    )
}

from_row! {
    /// The processes that need background process slots of this server at the same time.
    pub struct BackgroundDemand {
        /// The databases in which kb works now, including this one.
        pub databases: i64,
        /// The parallel workers of an index build.
        pub parallel: i64,
        /// The launcher of logical replication.
        pub replication: i64,
    }
}

/// Must run as the owner, because the processes of other roles are hidden otherwise. Works on a standby.
pub fn background_demand() -> Result<BackgroundDemand> {
    let found = spi::read_one(
        "SELECT 1 + (SELECT pg_catalog.count(DISTINCT a.datid) FROM pg_catalog.pg_stat_activity a
                     WHERE a.backend_type IN ('kb worker', 'kb indexer')
                       AND a.datname <> pg_catalog.current_database()) AS databases,
                pg_catalog.current_setting('max_parallel_maintenance_workers')::bigint AS parallel,
                (pg_catalog.current_setting('max_logical_replication_workers')::int4 > 0)::int4::bigint AS replication",
        &[],
        BackgroundDemand::from_row,
    )?;
    found.ok_or_else(|| Error::Internal("a row of counts is missing".into()))
}

/// Whether the extension and its tables exist, which is false during and after DROP EXTENSION.
pub fn is_installed() -> Result<bool> {
    spi::read_value("SELECT pg_catalog.to_regclass('kb.jobs') IS NOT NULL", &[])
}

/// Whether a text search configuration exists, in pg_catalog or by its qualified name.
pub fn language_exists(name: &str) -> Result<bool> {
    spi::read_value("SELECT EXISTS (SELECT FROM pg_catalog.pg_ts_config c JOIN pg_catalog.pg_namespace n ON n.oid = c.cfgnamespace
             WHERE (n.nspname = 'pg_catalog' AND pg_catalog.quote_ident(c.cfgname) = $1)
                OR pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.cfgname) = $1)", &[Arg::Text(name)])
}
