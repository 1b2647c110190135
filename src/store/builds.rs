//! kb.builds: the sets of chunks and vectors of a knowledge base.

use super::vector_dbs::VectorTable;
use crate::error::{Error, Result};
use crate::model::{Chunking, Preprocess};
use crate::pg::spi::{self, Arg, Row};
use serde_json::Value;

#[derive(Debug, Clone, PartialEq)]
pub struct Build {
    pub build_no: i64,
    pub kb_no: i64,
    pub tenant_id: String,
    /// live, next or old.
    pub state: String,
    pub embedder: String,
    pub fingerprint: i64,
    pub chunking: Chunking,
    pub preprocess: Preprocess,
    pub table: VectorTable,
    pub owns_table: bool,
    pub run_no: Option<i64>,
}

const COLUMNS: &str = "build_no, kb_no, tenant_id, state, embedder, fingerprint, chunking, preprocess,
    table_name, dimension, type, metric, config, owns_table, run_no";

fn build(row: &Row) -> Result<Build> {
    let internal = |p: Vec<String>| Error::Internal(format!("stored settings of a build: {}", p.join("; ")));
    let (kind, metric): (String, String) = (row.get(10)?, row.get(11)?);
    Ok(Build {
        build_no: row.get(0)?,
        kb_no: row.get(1)?,
        tenant_id: row.get(2)?,
        state: row.get(3)?,
        embedder: row.get(4)?,
        fingerprint: row.get(5)?,
        chunking: Chunking::stored(&row.json(6)?).map_err(internal)?,
        preprocess: Preprocess::parse(&row.json(7)?).map_err(internal)?,
        table: VectorTable::from_parts(row.get(8)?, row.get(9)?, &kind, &metric, &row.json(12)?)?,
        owns_table: row.get(13)?,
        run_no: row.opt(14)?,
    })
}

impl Build {
    /// Tells apart the builds and settings that a document's chunks were made under: the build's number
    /// and a hash over everything that decides its chunks and vectors.
    pub fn settings(&self) -> String {
        self.settings_under(self.fingerprint, &self.chunking, &self.preprocess)
    }

    /// The same for other settings in this build.
    pub fn settings_under(&self, fingerprint: i64, chunking: &Chunking, preprocess: &Preprocess) -> String {
        let text = format!("{fingerprint}\n{}\n{}", chunking.to_json(), preprocess.to_json());
        format!("{}-{}", self.build_no, &blake3::hash(text.as_bytes()).to_hex()[..16])
    }
}

/// The build that queries of a knowledge base read. Under the caller's snapshot.
pub fn live(kb_no: i64) -> Result<Build> {
    spi::read_one(
        &format!("SELECT {COLUMNS} FROM kb.builds WHERE kb_no = $1 AND state = 'live'"),
        &[Arg::Long(kb_no)],
        build,
    )?
    .ok_or_else(|| Error::Internal(format!("knowledge base {kb_no} has no live build")))
}

/// The builds that a document must be in: live first, then next.
pub fn current(kb_no: i64) -> Result<Vec<Build>> {
    spi::write(
        &format!(
            "SELECT {COLUMNS} FROM kb.builds WHERE kb_no = $1 AND state IN ('live', 'next') ORDER BY state"
        ),
        &[Arg::Long(kb_no)],
        build,
    )
}

/// Builds to be swept: old ones that no open snapshot of this database can still see as live.
pub fn old() -> Result<Vec<Build>> {
    spi::write(
        &format!(
            "SELECT {COLUMNS} FROM kb.builds b WHERE state = 'old' AND NOT EXISTS (
                 SELECT FROM pg_catalog.pg_stat_activity a
                 WHERE a.datname = pg_catalog.current_database() AND a.pid <> pg_catalog.pg_backend_pid()
                   AND pg_catalog.age(a.backend_xmin) >= pg_catalog.age(b.retired::xid))
             ORDER BY build_no LIMIT 10"
        ),
        &[],
        build,
    )
}

/// Live builds in unlogged tables, which a crash empties.
pub fn unlogged() -> Result<Vec<Build>> {
    spi::write(
        &format!("SELECT {COLUMNS} FROM kb.builds WHERE state = 'live' AND type = 'memory'"),
        &[],
        build,
    )
}

/// Next builds whose run waits for no document any more.
pub fn finished_next() -> Result<Vec<Build>> {
    spi::write(
        &format!(
            "SELECT {COLUMNS} FROM kb.builds b WHERE state = 'next'
             AND NOT EXISTS (SELECT FROM kb.jobs j WHERE j.kb_no = b.kb_no)"
        ),
        &[],
        build,
    )
}

/// A number for a build (and for the name of its table) before the row is written.
pub fn next_number() -> Result<i64> {
    spi::write_one("SELECT nextval('kb.build_no_seq')", &[], |row| row.get::<i64>(0))?
        .ok_or_else(|| Error::Internal("no build number".into()))
}

/// As the owner.
pub fn insert(build: &Build) -> Result<()> {
    spi::execute(
        "INSERT INTO kb.builds (build_no, kb_no, tenant_id, state, embedder, fingerprint, dimension, chunking,
             preprocess, table_name, owns_table, type, metric, element, config, run_no)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)",
        &[
            Arg::Long(build.build_no),
            Arg::Long(build.kb_no),
            Arg::Text(&build.tenant_id),
            Arg::Text(&build.state),
            Arg::Text(&build.embedder),
            Arg::Long(build.fingerprint),
            Arg::Int(build.table.dimension as i32),
            Arg::Json(&build.chunking.to_json()),
            Arg::Json(&build.preprocess.to_json()),
            Arg::Text(&build.table.table_name),
            Arg::Bool(build.owns_table),
            Arg::Text(build.table.kind.name()),
            Arg::Text(build.table.metric.name()),
            Arg::Text(build.table.element.name()),
            Arg::Json(&build.table.config_json()),
            Arg::LongOrNull(build.run_no),
        ],
    )?;
    Ok(())
}

/// Chunking and preprocessing that documents of this build are made under from now on. As the owner.
pub fn set_settings(build_no: i64, chunking: &Value, preprocess: &Value) -> Result<()> {
    spi::execute(
        "UPDATE kb.builds SET chunking = $2, preprocess = $3 WHERE build_no = $1",
        &[Arg::Long(build_no), Arg::Json(chunking), Arg::Json(preprocess)],
    )?;
    Ok(())
}

/// As the owner or the worker.
pub fn set_state(build_no: i64, state: &str) -> Result<()> {
    spi::execute(
        "UPDATE kb.builds SET state = $2,
             retired = CASE WHEN $2 = 'old' THEN pg_catalog.pg_current_xact_id() END WHERE build_no = $1",
        &[Arg::Long(build_no), Arg::Text(state)],
    )?;
    Ok(())
}

/// Deletes a build with its chunks (and, by cascade, vectors). As the owner or the worker.
pub fn delete(build_no: i64) -> Result<()> {
    spi::execute("DELETE FROM kb.builds WHERE build_no = $1", &[Arg::Long(build_no)])?;
    Ok(())
}

/// Tables that belong to single builds of a knowledge base. As the owner.
pub fn own_tables(kb_no: i64) -> Result<Vec<String>> {
    spi::write(
        "SELECT DISTINCT table_name FROM kb.builds WHERE kb_no = $1 AND owns_table",
        &[Arg::Long(kb_no)],
        |row| row.get(0),
    )
}
