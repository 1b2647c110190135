//! kb.builds: the sets of chunks and vectors of a knowledge base.

use crate::pg::row::FromColumn;
use crate::pg::setting;
use crate::pg::spi::{self, Arg, FromRow, Row};
use crate::pg::statement_arguments::Arguments;
use crate::sql::IN_ORDER;
use crate::vectors::VectorDb;
use kb_text::chunk_settings::Chunking;
use kb_types::Preprocess;
use kb_types::error::{Error, Result};
use kb_types::named::Named;
use kb_types::row_states::BuildState;
use pgrx::JsonB;
use serde_json::Value;
use uuid::Uuid;

#[derive(Debug, Clone, PartialEq)]
pub struct Build {
    pub build_no: i64,
    pub kb_no: i64,
    pub tenant_id: String,
    pub state: BuildState,
    pub embedder: String,
    pub fingerprint: i64,
    pub chunking: Chunking,
    pub preprocess: Preprocess,
    pub vector_db: VectorDb,
    pub owns_table: bool,
    pub run_no: Option<i64>,
}

/// The columns that [`build`] reads, of kb.builds b.
fn columns() -> String {
    format!(
        "b.build_no, b.kb_no, b.tenant_id, b.state, b.embedder, b.fingerprint, b.chunking, b.preprocess, b.owns_table,
         b.run_no, {}",
        VectorDb::columns("b")
    )
}

fn build(row: &Row) -> Result<Build> {
    Ok(Build {
        build_no: row.get("build_no")?,
        kb_no: row.get("kb_no")?,
        tenant_id: row.get("tenant_id")?,
        state: row.get("state")?,
        embedder: row.get("embedder")?,
        fingerprint: row.get("fingerprint")?,
        chunking: row.get("chunking")?,
        preprocess: row.get("preprocess")?,
        owns_table: row.get("owns_table")?,
        run_no: row.get("run_no")?,
        vector_db: VectorDb::from_row(row)?,
    })
}

impl FromColumn for BuildState {
    type Stored = String;

    fn from_stored(stored: String) -> Result<Self, String> {
        BuildState::one_of(&stored)
    }
}

impl FromColumn for Chunking {
    type Stored = JsonB;

    fn from_stored(stored: JsonB) -> Result<Self, String> {
        Chunking::stored(&stored.0).map_err(|problems| problems.join("; "))
    }
}

impl Build {
    /// Whether queries read it.
    pub fn is_live(&self) -> bool {
        self.state == BuildState::Live
    }

    /// Whether a run fills it beside the live one.
    pub fn is_next(&self) -> bool {
        self.state == BuildState::Next
    }

    /// Identifies the build and the settings under which a document's chunks were made: the number of the
    /// build and a hash of everything that decides its chunks and vectors.
    pub fn settings(&self) -> String {
        self.settings_under(self.fingerprint, &self.chunking, &self.preprocess)
    }

    /// The same for other settings in this build.
    pub fn settings_under(&self, fingerprint: i64, chunking: &Chunking, preprocess: &Preprocess) -> String {
        let text = format!("{fingerprint}\n{}\n{}", chunking.to_json(), preprocess.to_json());
        format!("{}-{}", self.build_no, &blake3::hash(text.as_bytes()).to_hex()[..16])
    }
}

/// The build that queries of a knowledge base read, under the caller's snapshot.
pub fn live(kb_no: i64) -> Result<Build> {
    spi::read_one(
        &format!("SELECT {} FROM kb.builds b WHERE kb_no = $1 AND state = 'live'", columns()),
        &[Arg::Long(kb_no)],
        build,
    )?
    .ok_or_else(|| Error::Internal(format!("knowledge base {kb_no} has no live build")))
}

/// The build that a run fills beside the live one, under the caller's snapshot.
pub fn next(kb_no: i64) -> Result<Option<Build>> {
    spi::read_one(
        &format!("SELECT {} FROM kb.builds b WHERE kb_no = $1 AND state = 'next'", columns()),
        &[Arg::Long(kb_no)],
        build,
    )
}

/// The builds that a document must be in: live first, then next.
pub fn current(kb_no: i64) -> Result<Vec<Build>> {
    spi::write(
        &format!(
            "SELECT {} FROM kb.builds b WHERE kb_no = $1 AND state IN ('live', 'next') ORDER BY state",
            columns()
        ),
        &[Arg::Long(kb_no)],
        build,
    )
}

/// Whether the caller can see the build. Works on a standby.
pub fn is_there(build_no: i64) -> Result<bool> {
    let sql = "SELECT true FROM kb.builds WHERE build_no = $1";
    Ok(spi::read_one(sql, &[Arg::Long(build_no)], Row::only::<bool>)?.is_some())
}

/// The builds to sweep: old ones that no open snapshot of this database can still see as live.
pub fn old() -> Result<Vec<Build>> {
    spi::write(
        &format!(
            "SELECT {} FROM kb.builds b WHERE state = 'old' AND NOT EXISTS (
                 SELECT FROM pg_catalog.pg_stat_activity a
                 WHERE a.datname = pg_catalog.current_database() AND a.pid <> pg_catalog.pg_backend_pid()
                   AND pg_catalog.age(a.backend_xmin) >= pg_catalog.age(b.retired::xid))
             ORDER BY build_no LIMIT 10",
            columns()
        ),
        &[],
        build,
    )
}

/// Live builds in unlogged tables, which a crash empties.
pub fn unlogged() -> Result<Vec<Build>> {
    spi::write(
        &format!("SELECT {} FROM kb.builds b WHERE state = 'live' AND type = 'memory'", columns()),
        &[],
        build,
    )
}

/// The next builds whose runs have no job left. Jobs that are no part of the run do not count, because
/// documents are edited all the time.
pub fn finished_next() -> Result<Vec<Build>> {
    spi::write(
        &format!(
            "SELECT {} FROM kb.builds b WHERE state = 'next'
             AND NOT EXISTS (SELECT FROM kb.jobs j WHERE j.run_no = b.run_no)
             AND (b.run_no IS NOT NULL OR NOT EXISTS (SELECT FROM kb.jobs j WHERE j.kb_no = b.kb_no))",
            columns()
        ),
        &[],
        build,
    )
}

/// A number for a build, and for the name of its table, before its row is written.
pub fn next_number() -> Result<i64> {
    spi::write_one("SELECT nextval('kb.build_no_seq')", &[], Row::only)?
        .ok_or_else(|| Error::Internal("no build number".into()))
}

/// Must run as the owner.
pub fn insert(build: &Build) -> Result<()> {
    let (chunking, preprocess) = (build.chunking.to_json(), build.preprocess.to_json());
    let mut arguments = Arguments::default();
    let values = [
        Arg::Long(build.build_no),
        Arg::Long(build.kb_no),
        Arg::Text(&build.tenant_id),
        Arg::Text(build.state.name()),
        Arg::Text(&build.embedder),
        Arg::Long(build.fingerprint),
        Arg::Json(&chunking),
        Arg::Json(&preprocess),
        Arg::Bool(build.owns_table),
        Arg::LongOrNull(build.run_no),
        Arg::Text(build.vector_db.element.name()),
    ]
    .map(|value| arguments.add(value));
    spi::execute(
        &format!(
            "INSERT INTO kb.builds (build_no, kb_no, tenant_id, state, embedder, fingerprint, chunking, preprocess,
                 owns_table, run_no, element, {}) VALUES ({}, {})",
            VectorDb::inserted(),
            values.join(", "),
            build.vector_db.values(&mut arguments),
        ),
        &arguments.all(),
    )?;
    Ok(())
}

/// Sets how documents are chunked and preprocessed in this build from now on. Must run as the owner.
pub fn set_settings(build_no: i64, chunking: &Value, preprocess: &Value) -> Result<()> {
    spi::execute(
        "UPDATE kb.builds SET chunking = $2, preprocess = $3 WHERE build_no = $1",
        &[Arg::Long(build_no), Arg::Json(chunking), Arg::Json(preprocess)],
    )?;
    Ok(())
}

/// For the owner or the worker.
pub fn set_state(build_no: i64, state: BuildState) -> Result<()> {
    spi::execute(
        "UPDATE kb.builds SET state = $2,
             retired = CASE WHEN $2 = 'old' THEN pg_catalog.pg_current_xact_id() END WHERE build_no = $1",
        &[Arg::Long(build_no), Arg::Text(state.name())],
    )?;
    Ok(())
}

/// Deletes up to `limit` chunks of a build after the chunk `after`. Returns the last of them if there may be
/// more. For the worker.
pub fn delete_chunks(build_no: i64, after: Uuid, limit: usize) -> Result<Option<Uuid>> {
    let deleted = setting::with(IN_ORDER, || {
        spi::write_one(
            "WITH part AS MATERIALIZED (
                 SELECT chunk_id FROM kb.chunks WHERE build_no = $1 AND chunk_id > $2::uuid ORDER BY chunk_id LIMIT $3),
             deleted AS (
                 DELETE FROM kb.chunks WHERE build_no = $1 AND chunk_id = ANY (ARRAY(SELECT chunk_id FROM part)))
             SELECT p.chunk_id, pg_catalog.count(*) OVER () AS chunks FROM part p ORDER BY p.chunk_id DESC LIMIT 1",
            &[Arg::Long(build_no), Arg::Text(&after.to_string()), Arg::Long(limit as i64)],
            |row| Ok((row.get("chunk_id")?, row.get::<i64>("chunks")?)),
        )
    })?;
    Ok(deleted.filter(|(_, count)| *count >= limit as i64).map(|(last, _)| last))
}

/// Deletes a build with its chunks and vectors. For the owner or the worker.
pub fn delete(build_no: i64) -> Result<()> {
    spi::execute("DELETE FROM kb.builds WHERE build_no = $1", &[Arg::Long(build_no)])?;
    // Chunks that wait to be folded have no foreign key.
    spi::execute("DELETE FROM kb.bm25_pending WHERE build_no = $1", &[Arg::Long(build_no)])?;
    Ok(())
}
