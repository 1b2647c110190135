//! kb.sources: sources that a run lists. `tables/sql/sources/catalog.rs` has attached tables.

use crate::builds::knowledge_bases::KnowledgeBase;
use crate::documents::new_documents::DocumentPlace;
use crate::pg::row::{FromColumn, from_row};
use crate::pg::spi::{self, Arg, FromRow, Row};
use crate::sources::config::{SourceConfig, SourceType};
use crate::sources::schedule;
use kb_types::error::{Error, Result};
use kb_types::named::Named;
use serde_json::Value;

from_row! {
    #[derive(Debug, Clone, PartialEq)]
    pub struct Source {
        pub source_no: i64,
        pub kb_no: i64,
        pub kb_id: String,
        /// The tenant of the knowledge base.
        pub tenant_id: String,
        pub name: String,
        pub kind: SourceType,
        pub config: Value,
        /// The role that created or altered it last, and the roles as which its session acted.
        pub role_name: String,
        pub role_oids: Vec<i64>,
        /// When it was altered last, in microseconds since 1970.
        pub altered_at: i64,
        /// The version that its documents have; None unless all that was listed became documents.
        pub version: Option<String>,
    }
}

impl FromColumn for SourceType {
    type Stored = String;

    fn from_stored(stored: String) -> Result<Self, String> {
        SourceType::one_of(&stored)
    }
}

impl Source {
    /// The tenant and the origin of its documents.
    pub fn place(&self) -> DocumentPlace<'_> {
        DocumentPlace {
            kb_no: self.kb_no,
            kb_id: &self.kb_id,
            tenant_id: &self.tenant_id,
            source_no: Some(self.source_no),
            part_of: None,
        }
    }
}

const COLUMNS: &str = "s.source_no, s.kb_no, k.id AS kb_id, s.tenant_id, s.name, s.type AS kind, s.config,
    s.role_name::text AS role_name, s.attached_by_oids::bigint[] AS role_oids,
    (pg_catalog.date_part('epoch', s.updated_at) * 1000000)::bigint AS altered_at, s.version";

pub fn by_name(kb_no: i64, name: &str) -> Result<Option<Source>> {
    spi::write_one(
        &format!(
            "SELECT {COLUMNS} FROM kb.sources s JOIN kb.knowledge_bases k USING (kb_no)
             WHERE s.kb_no = $1 AND s.name = $2"
        ),
        &[Arg::Long(kb_no), Arg::Text(name)],
        Source::from_row,
    )
}

/// The source, which cannot be dropped before the transaction ends. Returns an error (55P03) if it is being
/// dropped now.
pub fn hold(source_no: i64) -> Result<Option<Source>> {
    spi::write_one(
        &format!(
            "SELECT {COLUMNS} FROM kb.sources s JOIN kb.knowledge_bases k USING (kb_no)
             WHERE s.source_no = $1 AND s.type <> 'table' FOR KEY SHARE OF s NOWAIT"
        ),
        &[Arg::Long(source_no)],
        Source::from_row,
    )
}

/// The length of an interval. An error if the text is none.
pub fn seconds(every: &str) -> Result<f64> {
    spi::write_value("SELECT pg_catalog.date_part('epoch', $1::interval)", &[Arg::Text(every)])
}

/// When a source runs next: at a time in seconds since 1970, or after an interval, both as texts ($n) of
/// which one may be NULL.
fn next_run(at: &str, interval: &str) -> String {
    format!(
        "coalesce(pg_catalog.to_timestamp({at}::double precision), pg_catalog.clock_timestamp() + {interval}::interval)"
    )
}

/// The arguments of [`next_run`].
fn next_of(every: Option<&str>) -> (Option<String>, Option<String>) {
    let at = every.and_then(schedule::next);
    let interval = every.filter(|_| at.is_none()).map(str::to_string);
    (at.map(|at| at.to_string()), interval)
}

/// Who creates or alters a source.
pub struct Creator {
    /// The role that calls, with whose rights a query is run.
    pub name: String,
    /// All roles as which the session acts.
    pub roles: Vec<String>,
    pub oids: Vec<i64>,
}

/// Returns the number of the new source.
pub fn insert(
    kb: &KnowledgeBase,
    name: &str,
    kind: SourceType,
    config: &SourceConfig,
    creator: &Creator,
) -> Result<i64> {
    let (at, interval) = next_of(config.every.as_deref());
    spi::write_one(
        &format!(
            "INSERT INTO kb.sources (kb_no, tenant_id, type, name, role_name, config, attached_by, attached_by_oids, next_run_at)
             SELECT $1, $2, $3, $4, $10::name, $5, $6::name[], $7::oid[], {} RETURNING source_no",
            next_run("$8", "$9")
        ),
        &[
            Arg::Long(kb.kb_no),
            Arg::Text(&kb.tenant_id),
            Arg::Text(kind.name()),
            Arg::Text(name),
            Arg::Json(&config.to_json()),
            Arg::Texts(&creator.roles),
            Arg::Longs(&creator.oids),
            Arg::TextOrNull(at.as_deref()),
            Arg::TextOrNull(interval.as_deref()),
            Arg::Text(&creator.name),
        ],
        Row::only,
    )?
    .ok_or_else(|| Error::Internal("no source number".into()))
}

/// Alters a source. Its documents are read again, because they get other metadata.
pub fn update(source_no: i64, config: &SourceConfig, creator: &Creator) -> Result<()> {
    let (at, interval) = next_of(config.every.as_deref());
    spi::execute(
        &format!(
            "UPDATE kb.sources SET config = $2, role_name = $7::name, attached_by = $3::name[], attached_by_oids = $4::oid[],
                 next_run_at = {}, error = NULL, version = NULL, updated_at = pg_catalog.clock_timestamp() WHERE source_no = $1",
            next_run("$5", "$6")
        ),
        &[
            Arg::Long(source_no),
            Arg::Json(&config.to_json()),
            Arg::Texts(&creator.roles),
            Arg::Longs(&creator.oids),
            Arg::TextOrNull(at.as_deref()),
            Arg::TextOrNull(interval.as_deref()),
            Arg::Text(&creator.name),
        ],
    )?;
    spi::execute(
        "UPDATE kb.documents SET version = '' WHERE source_no = $1 AND version <> ''",
        &[Arg::Long(source_no)],
    )?;
    Ok(())
}

pub fn delete(source: &Source) -> Result<()> {
    spi::execute("DELETE FROM kb.sources WHERE source_no = $1", &[Arg::Long(source.source_no)])?;
    Ok(())
}

pub fn delete_job(source: &Source) -> Result<()> {
    spi::execute(
        "DELETE FROM kb.jobs WHERE kb_no = $1 AND tenant_id = $2 AND kind = 'source' AND subject = $3",
        &[Arg::Long(source.kb_no), Arg::Text(&source.tenant_id), Arg::Text(&source.name)],
    )?;
    Ok(())
}

/// Upserts a job for each source of a knowledge base, or for this one. A job that exists gets a new
/// generation: what is in progress is done once more.
pub fn enqueue(kb_no: i64, source_no: Option<i64>, run_no: i64) -> Result<()> {
    spi::execute(
        "INSERT INTO kb.jobs AS j (kb_no, tenant_id, kind, subject, run_no, source_no)
         SELECT s.kb_no, s.tenant_id, 'source', s.name, $3, s.source_no FROM kb.sources s
         WHERE s.kb_no = $1 AND s.type <> 'table' AND ($2 IS NULL OR s.source_no = $2)
         ON CONFLICT (kb_no, tenant_id, kind, subject) DO UPDATE SET generation = EXCLUDED.generation, attempts = 0,
             next_attempt_at = NULL, error = NULL, run_no = EXCLUDED.run_no, source_no = EXCLUDED.source_no",
        &[Arg::Long(kb_no), Arg::LongOrNull(source_no), Arg::Long(run_no)],
    )?;
    Ok(())
}

from_row! {
    /// A source whose time has come.
    pub struct DueSource {
        pub source_no: i64,
        pub kb_no: i64,
        pub tenant_id: String,
        /// How many documents it has.
        pub documents: i64,
    }
}

/// Sets the time of the next run of sources that are due. Returns those that have no job.
pub fn take_due() -> Result<Vec<DueSource>> {
    let due: Vec<(i64, Option<String>)> = spi::write(
        "SELECT d.source_no, d.config ->> 'every' AS every FROM kb.sources d
         WHERE d.next_run_at <= pg_catalog.clock_timestamp()
         ORDER BY d.next_run_at LIMIT 100 FOR NO KEY UPDATE SKIP LOCKED",
        &[],
        |row| Ok((row.get("source_no")?, row.get("every")?)),
    )?;
    let (source_nos, every): (Vec<i64>, Vec<Option<String>>) = due.into_iter().unzip();
    let (at, interval): (Vec<String>, Vec<String>) = every
        .iter()
        .map(|every| next_of(every.as_deref()))
        .map(|(at, interval)| (at.unwrap_or_default(), interval.unwrap_or_default()))
        .unzip();
    spi::write(
        &format!(
            "WITH due AS (
                 UPDATE kb.sources s SET next_run_at = {}
                 FROM unnest($1::bigint[], $2::text[], $3::text[]) AS u (source_no, at, every)
                 WHERE s.source_no = u.source_no
                 RETURNING s.source_no, s.kb_no, s.tenant_id, s.name)
             SELECT d.source_no, d.kb_no, d.tenant_id,
                 (SELECT count(*) FROM kb.documents o WHERE o.source_no = d.source_no) AS documents
             FROM due d WHERE NOT EXISTS (
                 SELECT FROM kb.jobs j WHERE j.kb_no = d.kb_no AND j.tenant_id = d.tenant_id AND j.kind = 'source'
                     AND j.subject = d.name)",
            next_run("nullif(u.at, '')", "nullif(u.every, '')")
        ),
        &[Arg::Longs(&source_nos), Arg::Texts(&at), Arg::Texts(&interval)],
        DueSource::from_row,
    )
}

pub fn any_due() -> Result<bool> {
    spi::write_value(
        "SELECT EXISTS (SELECT FROM kb.sources WHERE next_run_at <= pg_catalog.clock_timestamp())",
        &[],
    )
}

/// Records the version that the documents of a source have; None: they have no common one.
pub fn set_version(source_no: i64, version: Option<&str>) -> Result<()> {
    spi::execute(
        "UPDATE kb.sources SET version = $2 WHERE source_no = $1",
        &[Arg::Long(source_no), Arg::TextOrNull(version)],
    )?;
    Ok(())
}

/// Records that a source was listed in a run, and what is wrong with it as a whole. `is_complete`: the
/// listing was read to its end.
pub fn set_listed(
    source: &Source,
    run_no: Option<i64>,
    is_complete: bool,
    error: Option<&str>,
) -> Result<()> {
    let (at, interval) = next_of(source.config.get("every").and_then(Value::as_str));
    spi::execute(
        &format!(
            "UPDATE kb.sources SET run_no = coalesce($2, run_no), error = $4,
                 last_run_at = CASE WHEN $3 THEN pg_catalog.clock_timestamp() ELSE last_run_at END,
                 next_run_at = {} WHERE source_no = $1",
            next_run("$5", "$6")
        ),
        &[
            Arg::Long(source.source_no),
            Arg::LongOrNull(run_no),
            Arg::Bool(is_complete),
            Arg::TextOrNull(error),
            Arg::TextOrNull(at.as_deref()),
            Arg::TextOrNull(interval.as_deref()),
        ],
    )?;
    Ok(())
}
