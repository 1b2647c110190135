//! kb.runs.

use crate::pg::row::FromColumn;
use crate::pg::spi::{self, Arg, Row};
use kb_types::error::{Error, Result};
use kb_types::named::Named;
use kb_types::row_states::{RunState, RunStrategy};

impl FromColumn for RunState {
    type Stored = String;

    fn from_stored(stored: String) -> Result<Self, String> {
        RunState::one_of(&stored)
    }
}

/// Starts a run and returns its number.
pub fn insert(kb_no: i64, tenant_id: &str, strategy: RunStrategy) -> Result<i64> {
    spi::write_one(
        "INSERT INTO kb.runs (kb_no, tenant_id, strategy) VALUES ($1, $2, $3) RETURNING run_no",
        &[Arg::Long(kb_no), Arg::Text(tenant_id), Arg::Text(strategy.name())],
        Row::only::<i64>,
    )?
    .ok_or_else(|| Error::Internal("no run number".into()))
}

/// Records how many documents a run looked at, and how many of them needed nothing.
pub fn set_scanned(run_no: i64, scanned: i64, skipped: i64) -> Result<()> {
    spi::execute(
        "UPDATE kb.runs SET scanned = $2, skipped = $3 WHERE run_no = $1",
        &[Arg::Long(run_no), Arg::Long(scanned), Arg::Long(skipped)],
    )?;
    Ok(())
}

/// Adds to a run's counts.
pub fn count(run_no: i64, counts: Counts) -> Result<()> {
    spi::execute(
        "UPDATE kb.runs SET added = added + $2, updated = updated + $3, failed = failed + $4, chunks = chunks + $5
         WHERE run_no = $1",
        &[
            Arg::Long(run_no),
            Arg::Long(counts.added),
            Arg::Long(counts.updated),
            Arg::Long(counts.failed),
            Arg::Long(counts.chunks),
        ],
    )?;
    Ok(())
}

/// Documents of a run that have ended, and the chunks of those that are ready.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub added: i64,
    pub updated: i64,
    pub failed: i64,
    pub chunks: i64,
}

/// Counts the chunks of the build that a replacing run has made.
pub fn set_chunks(run_no: i64, build_no: i64) -> Result<()> {
    spi::execute(
        "UPDATE kb.runs SET chunks = (SELECT count(*) FROM kb.chunks c WHERE c.build_no = $2) WHERE run_no = $1",
        &[Arg::Long(run_no), Arg::Long(build_no)],
    )?;
    Ok(())
}

/// What a source has changed: adds to a run's counts. `skipped` and `failed` are not less than 0 in the sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SourceCounts {
    pub scanned: i64,
    pub skipped: i64,
    pub deleted: i64,
    pub failed: i64,
    pub bytes: i64,
}

pub fn count_source(run_no: i64, counts: SourceCounts) -> Result<()> {
    spi::execute(
        "UPDATE kb.runs SET scanned = scanned + $2, skipped = greatest(skipped + $3, 0), deleted = deleted + $4,
             failed = failed + $5, bytes = bytes + $6 WHERE run_no = $1",
        &[
            Arg::Long(run_no),
            Arg::Long(counts.scanned),
            Arg::Long(counts.skipped),
            Arg::Long(counts.deleted),
            Arg::Long(counts.failed),
            Arg::Long(counts.bytes),
        ],
    )?;
    Ok(())
}

/// Adds the problem of a source to a run.
pub fn warn(run_no: i64, warning: &str) -> Result<()> {
    spi::execute(
        "UPDATE kb.runs SET warnings = warnings || $2::text WHERE run_no = $1",
        &[Arg::Long(run_no), Arg::Text(warning)],
    )?;
    Ok(())
}

/// Ends the runs for which no document or source waits; a later run may have taken over a source. A replacing
/// run is ended by its switch instead.
pub fn finish_idle() -> Result<u64> {
    spi::execute(
        "UPDATE kb.runs r SET state = 'done', finished_at = pg_catalog.clock_timestamp()
         WHERE state = 'running' AND strategy = 'upsert'
           AND NOT EXISTS (SELECT FROM kb.jobs j WHERE j.run_no = r.run_no)
           AND NOT EXISTS (SELECT FROM kb.jobs j WHERE j.kb_no = r.kb_no AND j.tenant_id = r.tenant_id
                               AND j.kind = 'source' AND j.run_no > r.run_no)",
        &[],
    )
}

/// Ends a run.
pub fn finish(run_no: i64, state: RunState, error: Option<&str>) -> Result<()> {
    spi::execute(
        "UPDATE kb.runs SET state = $2, error = $3, finished_at = pg_catalog.clock_timestamp() WHERE run_no = $1",
        &[Arg::Long(run_no), Arg::Text(state.name()), Arg::TextOrNull(error)],
    )?;
    Ok(())
}

/// The number of documents that failed in a run.
pub fn failed(run_no: i64) -> Result<i64> {
    let failed = "SELECT failed FROM kb.runs WHERE run_no = $1";
    spi::write_value(failed, &[Arg::Long(run_no)])
}

/// Whether a run of this knowledge base is under way.
pub fn is_running(kb_no: i64) -> Result<bool> {
    spi::read_value(
        "SELECT EXISTS (SELECT FROM kb.runs WHERE kb_no = $1 AND state = 'running')",
        &[Arg::Long(kb_no)],
    )
}

/// Whether any run is under way, or any old build waits to be swept.
pub fn any_housekeeping() -> Result<bool> {
    spi::write_value(
        "SELECT EXISTS (SELECT FROM kb.runs WHERE state = 'running') OR EXISTS (SELECT FROM kb.builds WHERE state = 'old')",
        &[],
    )
}

/// The knowledge base of a run, if the caller may see it, also if this statement started the run.
pub fn knowledge_base(run_no: i64) -> Result<Option<i64>> {
    spi::write_one("SELECT kb_no FROM kb.runs WHERE run_no = $1", &[Arg::Long(run_no)], Row::only)
}

/// Whether a run has ended or no longer exists. Returns an error if it failed.
pub fn is_over(run_no: i64) -> Result<bool> {
    let found = spi::read_one(
        "SELECT state, coalesce(error, '') AS error FROM kb.runs WHERE run_no = $1",
        &[Arg::Long(run_no)],
        |row| Ok((row.get("state")?, row.get::<String>("error")?)),
    )?;
    match found {
        Some((RunState::Failed, error)) => Err(Error::State {
            problem: format!("run {run_no} failed: {error}"),
            hint: "SELECT * FROM kb.failures says why.".into(),
        }),
        Some((state, _)) => Ok(state == RunState::Done),
        None => Ok(true),
    }
}
