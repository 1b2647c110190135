//! The server's own catalogs: extensions, versions, settings of others.

use crate::error::{Error, Result};
use crate::pg::spi::{self, Arg};
use crate::pg::vector;
use std::cell::Cell;

thread_local! {
    /// The type `vector` of this database, once it was looked up.
    static VECTOR: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The schema of pgvector, quoted, in which its types and operators are written. Looked up each time, by the oid of its type: once
/// it has moved, anybody who may create in the old schema can take the old names.
pub fn vector_schema() -> Result<String> {
    if let Some(schema) = VECTOR.get().and_then(vector::schema_of) {
        return Ok(schema);
    }
    let found = spi::read_one(
        "SELECT t.oid::bigint, pg_catalog.quote_ident(n.nspname) FROM pg_catalog.pg_extension e
         JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace
         JOIN pg_catalog.pg_type t ON t.typnamespace = e.extnamespace AND t.typname = 'vector'
         WHERE e.extname = 'vector'",
        &[],
        |row| Ok((row.get::<i64>(0)? as u32, row.get::<String>(1)?)),
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

/// Where the role that reads vectors may not use pgvector's schema, since pgvector was moved: that schema, quoted, and the
/// statement that lets it. Works on a standby.
pub fn vector_schema_without_usage() -> Result<Option<(String, String)>> {
    spi::read_one(
        "SELECT pg_catalog.quote_ident(n.nspname),
                pg_catalog.format('GRANT USAGE ON SCHEMA %I TO kb_vectors;', n.nspname)
         FROM pg_catalog.pg_extension e
         JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace
         WHERE e.extname = 'vector' AND NOT pg_catalog.has_schema_privilege('kb_vectors', n.oid, 'USAGE')",
        &[],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )
}

/// Version of an installed extension.
pub fn extension_version(name: &str) -> Result<Option<String>> {
    spi::read_one(
        "SELECT extversion FROM pg_catalog.pg_extension WHERE extname = $1",
        &[Arg::Text(name)],
        |row| row.get::<String>(0),
    )
}

/// Whether the extension and its tables are there: false while or after DROP EXTENSION.
pub fn is_installed() -> Result<bool> {
    Ok(spi::read_one("SELECT pg_catalog.to_regclass('kb.jobs') IS NOT NULL", &[], |row| row.get::<bool>(0))?
        .unwrap_or(false))
}

/// Whether there is such a text search configuration: in pg_catalog, or named with its schema.
pub fn language_exists(name: &str) -> Result<bool> {
    let found = spi::read_one(
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_ts_config c JOIN pg_catalog.pg_namespace n ON n.oid = c.cfgnamespace
             WHERE (n.nspname = 'pg_catalog' AND pg_catalog.quote_ident(c.cfgname) = $1)
                OR pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.cfgname) = $1)",
        &[Arg::Text(name)],
        |row| row.get::<bool>(0),
    )?;
    Ok(found == Some(true))
}
