//! kb.jobs: the queue. due_jobs.rs decides which jobs may be claimed.
//!
//! A document has at most one job, found by knowledge base, tenant, kind and subject. The only foreign key of
//! a job is to the knowledge base, because jobs of other kinds will have other subjects. Therefore a call
//! that deletes documents deletes their jobs after them, in the same transaction, and the worker deletes a
//! job whose document somebody deleted by hand ([`delete_if_orphan`]).
//!
//! An edit gives the job a new generation and clears its attempts. Generations come from a sequence, so none
//! is used twice. A worker that finishes a job deletes it only under the generation that it claimed; if the
//! generation has changed, the worker gives the job back and the document is processed again. In this way the
//! last edit is always processed.
//!
//! A lease (`leased_until`) lets a job outlive its worker, which renews the lease every third of
//! `kb.lease_duration`.

use crate::pg::index_lookup::{self, Key};
use crate::pg::row::from_row;
use crate::pg::setting;
use crate::pg::spi::{self, Arg, Row};
use crate::sql::{BY_INDEX, BY_INDEX_UNPLANNED, IS_UNCOMMITTED};
use kb_types::error::Result;
use kb_types::row_states::Priority;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// The columns that [`job`] reads.
pub const COLUMNS: &str = "kind, kb_no, tenant_id, subject, generation, attempts, run_no, \
    priority::int AS priority, job_no, source_no";

/// A document, or the subject of another kind of work, on which a worker holds a lease.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// The kind of work: the one that does it has this name.
    pub kind: String,
    pub kb_no: i64,
    /// The tenant of the document.
    pub tenant_id: String,
    /// The subject: for a document its external_id.
    pub external_id: String,
    pub generation: i64,
    pub attempts: i32,
    pub run_no: Option<i64>,
    pub priority: Priority,
    /// The place in the queue, which also identifies the job: if a document was deleted and put again, its
    /// new job has another number.
    pub job_no: i64,
    /// The source whose row is the document, or None if it was put.
    pub source_no: Option<i64>,
    /// The vector that its row had already, and the fingerprint of the embedder that made it.
    pub adopted: Option<(i64, Arc<[f32]>)>,
}

from_row! {
    /// The subject of a job: a name (for a document its external_id) that is unique within its tenant only.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Subject {
        pub tenant_id: String,
        pub name: String,
        /// The source whose row is the document, or None if it was put.
        pub source_no: Option<i64>,
    }
}

/// Whether a document may be waiting. Works on a standby.
pub fn may_wait(kb_no: i64, tenant_id: &str, external_id: &str) -> bool {
    let key = [Key::Long(kb_no), Key::Text(tenant_id), Key::Text("document"), Key::Text(external_id)];
    index_lookup::count(c"jobs", c"jobs_kb_no_tenant_id_kind_subject_key", &key, 1) != Some(0)
}

/// Upserts one job per document. An existing job, claimed or not, gets a new generation.
pub fn enqueue(kb_no: i64, documents: &[Subject], priority: Priority, run_no: Option<i64>) -> Result<()> {
    let (tenants, names): (Vec<String>, Vec<String>) =
        documents.iter().map(|subject| (subject.tenant_id.clone(), subject.name.clone())).unzip();
    let sources: Vec<i64> = documents.iter().map(|subject| subject.source_no.unwrap_or(0)).collect();
    spi::execute(
        "INSERT INTO kb.jobs AS j (kb_no, tenant_id, kind, subject, priority, run_no, source_no)
         SELECT $1, u.tenant_id, 'document', u.name, $4, $5, nullif(u.source_no, 0)
         FROM unnest($2::text[], $3::text[], $6::bigint[]) AS u (tenant_id, name, source_no)
         ON CONFLICT (kb_no, tenant_id, kind, subject) DO UPDATE SET generation = EXCLUDED.generation,
             priority = least(j.priority, EXCLUDED.priority), attempts = 0, next_attempt_at = NULL, error = NULL, embedder = NULL,
             chunked = NULL, source_no = EXCLUDED.source_no,
             run_no = coalesce(EXCLUDED.run_no, j.run_no)",
        &[
            Arg::Long(kb_no),
            Arg::Texts(&tenants),
            Arg::Texts(&names),
            Arg::Int(priority.number()),
            Arg::LongOrNull(run_no),
            Arg::Longs(&sources),
        ],
    )?;
    Ok(())
}

/// Deletes the jobs of a tenant's documents that are deleted, but not those of rows of attached tables.
pub fn delete(kb_no: i64, tenant_id: &str, external_ids: &[String]) -> Result<()> {
    setting::with(BY_INDEX, || {
        spi::execute(
            "DELETE FROM kb.jobs WHERE job_no = ANY (ARRAY(
                 SELECT (SELECT j.job_no FROM kb.jobs j WHERE j.kb_no = $1 AND j.tenant_id = $2
                             AND j.kind = 'document' AND j.subject = u.name AND j.source_no IS NULL)
                 FROM pg_catalog.unnest($3::text[]) AS u (name)))",
            &[Arg::Long(kb_no), Arg::Text(tenant_id), Arg::Texts(external_ids)],
        )
    })?;
    Ok(())
}

/// Deletes a job whose document an owner deleted by hand (DELETE or TRUNCATE), which leaves the job behind.
/// Returns whether that was the case.
pub fn delete_if_orphan(job: &Job) -> Result<bool> {
    let deleted = spi::execute(
        "DELETE FROM kb.jobs WHERE job_no = (
             SELECT j.job_no FROM kb.jobs j WHERE j.job_no = $1 AND j.generation = $2 AND j.kind = 'document' AND (
                 SELECT d.document_id FROM kb.documents d
                 WHERE d.kb_no = j.kb_no AND d.tenant_id = j.tenant_id AND d.external_id = j.subject) IS NULL
             FOR UPDATE SKIP LOCKED)",
        &[Arg::Long(job.job_no), Arg::Long(job.generation)],
    )?;
    Ok(deleted > 0)
}

/// Extends the leases of jobs in progress, except those that an open transaction has locked.
pub fn extend(jobs: &[Job], lease: Duration) -> Result<()> {
    spi::execute(
        "UPDATE kb.jobs j SET leased_until = now() + pg_catalog.make_interval(secs => $2)
         FROM (SELECT j.job_no FROM pg_catalog.unnest($1::bigint[]) AS u (job_no) JOIN kb.jobs j USING (job_no)
               FOR UPDATE OF j SKIP LOCKED) u
         WHERE j.job_no = u.job_no",
        &[Arg::Longs(&numbers(jobs)), Arg::Double(lease.as_secs_f64())],
    )?;
    Ok(())
}

fn numbers(jobs: &[Job]) -> Vec<i64> {
    jobs.iter().map(|job| job.job_no).collect()
}

fn generations(jobs: &[Job]) -> Vec<i64> {
    jobs.iter().map(|job| job.generation).collect()
}

/// Deletes jobs that were not edited since they were claimed. The others are given back at once, to be
/// processed again under the new generation. Returns the job_no of the deleted ones. The caller must have
/// their documents locked.
pub fn finish(jobs: &[Job]) -> Result<Vec<i64>> {
    // One plan is kept, which must not depend on the number of jobs.
    let sql = "DELETE FROM kb.jobs j
         WHERE j.job_no = ANY ($1) AND j.generation = ($2::bigint[])[pg_catalog.array_position($1::bigint[], j.job_no)]
         RETURNING j.job_no";
    let (numbers, generations) = (numbers(jobs), generations(jobs));
    let arguments = [Arg::Longs(&numbers), Arg::Longs(&generations)];
    let delete = || spi::write(sql, &arguments, Row::only::<i64>);
    let finished = setting::with(BY_INDEX_UNPLANNED, delete)?;
    if finished.len() < jobs.len() {
        release(jobs, Duration::ZERO, None, false)?;
    }
    Ok(finished)
}

/// Makes the documents of a knowledge base that are in progress be processed again, because there are other
/// builds than when they were claimed.
pub fn renew_leased(kb_no: i64) -> Result<()> {
    spi::execute(
        "UPDATE kb.jobs SET generation = pg_catalog.nextval('kb.job_no_seq')
         WHERE kb_no = $1 AND kind = 'document' AND leased_until IS NOT NULL",
        &[Arg::Long(kb_no)],
    )?;
    Ok(())
}

/// Turns jobs of a source that no longer exists into those of documents that were put.
pub fn forget_source(jobs: &[Job], source_no: i64) -> Result<()> {
    spi::execute(
        "UPDATE kb.jobs SET source_no = NULL WHERE job_no = ANY ($1) AND source_no = $2
             AND NOT EXISTS (SELECT FROM kb.sources s WHERE s.source_no = $2)",
        &[Arg::Longs(&numbers(jobs)), Arg::Long(source_no)],
    )?;
    Ok(())
}

/// Assigns a job to the source of its document, or to none if the document was put. The caller must have the
/// document locked.
pub fn give_to(job: &Job, source_no: Option<i64>) -> Result<()> {
    let given = spi::execute(
        "UPDATE kb.jobs SET source_no = $3, leased_until = NULL, next_attempt_at = NULL, attempts = 0, error = NULL, embedder = NULL
         WHERE job_no = $1 AND generation = $2",
        &[Arg::Long(job.job_no), Arg::Long(job.generation), Arg::LongOrNull(source_no)],
    )?;
    // The job was edited since, whoever did that.
    if given == 0 {
        release(std::slice::from_ref(job), Duration::ZERO, None, false)?;
    }
    Ok(())
}

/// Why a job is given back: the error message, and the embedder that caused it.
#[derive(Debug, Clone, Copy)]
pub struct Fault<'a> {
    pub text: &'a str,
    pub embedder: Option<&'a str>,
}

/// Records in kb.documents why these documents are still waiting, unless that is recorded already. Whatever
/// ends the wait removes it.
fn tell_documents(jobs: &[Job], fault: Fault) -> Result<()> {
    spi::execute(
        "UPDATE kb.documents d SET error = $3
         FROM (SELECT d.document_id
               FROM unnest($1::bigint[], $2::bigint[]) AS u (job_no, generation)
               JOIN kb.jobs j USING (job_no, generation)
               JOIN kb.documents d ON d.kb_no = j.kb_no AND d.tenant_id = j.tenant_id AND d.external_id = j.subject
               WHERE j.kind = 'document' AND d.status = 'pending' AND d.error IS DISTINCT FROM $3
               FOR UPDATE OF d SKIP LOCKED) w
         WHERE d.document_id = w.document_id",
        &[Arg::Longs(&numbers(jobs)), Arg::Longs(&generations(jobs)), Arg::Text(fault.text)],
    )?;
    Ok(())
}

/// Gives jobs back, to be tried again after `delay`. Jobs that were edited meanwhile are due at once and
/// without the error, which concerned the previous text. If the attempt does not `count`, it is subtracted
/// again. Returns the jobs that could not be given back because an open transaction has them locked.
pub fn release(jobs: &[Job], delay: Duration, error: Option<Fault>, count: bool) -> Result<Vec<Job>> {
    give_back(jobs, delay, error, count, false)
}

/// Gives back jobs whose chunks are written and whose embedder is paused; the attempt does not count.
/// Otherwise like [`release`].
pub fn pause(jobs: &[Job], delay: Duration, error: Fault) -> Result<Vec<Job>> {
    give_back(jobs, delay, Some(error), false, true)
}

fn give_back(
    jobs: &[Job],
    delay: Duration,
    error: Option<Fault>,
    count: bool,
    chunked: bool,
) -> Result<Vec<Job>> {
    let given: HashSet<i64> = spi::write(
        "UPDATE kb.jobs j SET leased_until = NULL,
             error = CASE WHEN j.generation = u.generation THEN $3 END,
             embedder = CASE WHEN j.generation = u.generation THEN $7 END,
             next_attempt_at = CASE WHEN j.generation = u.generation AND $4 > 0
                 THEN now() + pg_catalog.make_interval(secs => $4) END,
             attempts = CASE WHEN $5 THEN attempts ELSE greatest(attempts - 1, 0) END,
             chunked = CASE WHEN $6 AND j.generation = u.generation THEN u.generation ELSE j.chunked END
         FROM (SELECT u.job_no, u.generation
               FROM unnest($1::bigint[], $2::bigint[]) AS u (job_no, generation) JOIN kb.jobs j USING (job_no)
               FOR UPDATE OF j SKIP LOCKED) u
         WHERE j.job_no = u.job_no
         RETURNING j.job_no",
        &[
            Arg::Longs(&numbers(jobs)),
            Arg::Longs(&generations(jobs)),
            Arg::TextOrNull(error.map(|fault| fault.text)),
            Arg::Double(delay.as_secs_f64()),
            Arg::Bool(count),
            Arg::Bool(chunked),
            Arg::TextOrNull(error.and_then(|fault| fault.embedder)),
        ],
        Row::only::<i64>,
    )?
    .into_iter()
    .collect();
    if let Some(fault) = error {
        tell_documents(jobs, fault)?;
    }
    if given.len() == jobs.len() {
        return Ok(Vec::new());
    }
    // A document that was deleted has no job any more.
    let there: HashSet<i64> = spi::write(
        "SELECT j.job_no FROM pg_catalog.unnest($1::bigint[]) AS u (job_no) JOIN kb.jobs j USING (job_no)",
        &[Arg::Longs(&numbers(jobs))],
        Row::only::<i64>,
    )?
    .into_iter()
    .collect();
    let is_left = |job: &&Job| there.contains(&job.job_no) && !given.contains(&job.job_no);
    Ok(jobs.iter().filter(is_left).cloned().collect())
}

/// Makes every job due that is not in progress. A job that is being enqueued is due in any case. Must run as
/// the owner.
pub fn make_due() -> Result<()> {
    spi::execute(
        "UPDATE kb.jobs SET next_attempt_at = NULL, chunked = NULL WHERE job_no IN (
             SELECT job_no FROM kb.jobs
             WHERE leased_until IS NULL AND (next_attempt_at IS NOT NULL OR chunked IS NOT NULL) FOR UPDATE SKIP LOCKED)",
        &[],
    )?;
    Ok(())
}

/// The same for documents that wait for one embedder. Must run as the owner.
pub fn make_due_for_embedder(embedder: &str) -> Result<()> {
    spi::execute(
        "UPDATE kb.jobs SET next_attempt_at = NULL, chunked = NULL WHERE job_no IN (
             SELECT job_no FROM kb.jobs
             WHERE leased_until IS NULL AND (next_attempt_at IS NOT NULL OR chunked IS NOT NULL)
             AND kb_no IN (SELECT kb_no FROM kb.builds WHERE embedder = $1 AND state <> 'old')
             FOR UPDATE SKIP LOCKED)",
        &[Arg::Text(embedder)],
    )?;
    Ok(())
}

/// Ends every lease; the jobs are tried again after `delay` (see [`release`]). A database has one worker at a
/// time (its pid file says so), so every lease belongs to the caller or to a worker that died. Returns the
/// jobs that an open transaction has locked.
pub fn release_all(delay: Duration, error: Option<&str>, count: bool) -> Result<Vec<Job>> {
    spi::execute(
        "UPDATE kb.jobs SET leased_until = NULL, error = $2, embedder = NULL,
             next_attempt_at = CASE WHEN $1 > 0 THEN now() + pg_catalog.make_interval(secs => $1) END,
             attempts = CASE WHEN $3 THEN attempts ELSE greatest(attempts - 1, 0) END
         WHERE job_no IN (
             SELECT job_no FROM kb.jobs WHERE leased_until IS NOT NULL FOR UPDATE SKIP LOCKED)",
        &[Arg::Double(delay.as_secs_f64()), Arg::TextOrNull(error), Arg::Bool(count)],
    )?;
    spi::write(&format!("SELECT {COLUMNS} FROM kb.jobs WHERE leased_until IS NOT NULL"), &[], job)
}

/// The job on which a worker died, by its place in the queue. Its attempt counts, even if the crash lost the
/// claim.
pub fn take_over(job_no: i64) -> Result<Option<Job>> {
    spi::write_one(
        &format!(
            "UPDATE kb.jobs SET attempts = attempts + (leased_until IS NULL)::int, leased_until = coalesce(leased_until, now())
             WHERE job_no = (
                 SELECT job_no FROM kb.jobs WHERE job_no = $1 FOR UPDATE SKIP LOCKED)
             RETURNING {COLUMNS}"
        ),
        &[Arg::Long(job_no)],
        job,
    )
}

/// Jobs that have used all their attempts, at most 1,000.
pub fn exhausted(max_attempts: i32) -> Result<Vec<Job>> {
    spi::write(
        &format!("SELECT {COLUMNS} FROM kb.jobs WHERE attempts >= $1 LIMIT 1000"),
        &[Arg::Int(max_attempts)],
        job,
    )
}

pub fn job(row: &Row) -> Result<Job> {
    Ok(Job {
        kind: row.get("kind")?,
        kb_no: row.get("kb_no")?,
        tenant_id: row.get("tenant_id")?,
        external_id: row.get("subject")?,
        generation: row.get("generation")?,
        attempts: row.get("attempts")?,
        run_no: row.get("run_no")?,
        priority: Priority::stored(row.get("priority")?)?,
        job_no: row.get("job_no")?,
        source_no: row.get("source_no")?,
        adopted: None,
    })
}

/// Whether any job exists, due or not.
pub fn any() -> Result<bool> {
    spi::write_value("SELECT EXISTS (SELECT FROM kb.jobs)", &[])
}

/// Whether the caller can see any job. Works on a standby.
pub fn any_visible() -> Result<bool> {
    // If no worker runs, every question asks this, and nearly always nothing is waiting.
    if index_lookup::count(c"jobs", c"jobs_pkey", &[], 1) == Some(0) {
        return Ok(false);
    }
    spi::read_value("SELECT EXISTS (SELECT FROM kb.jobs)", &[])
}

/// Whether this transaction has enqueued a job or begun a run, other than in a savepoint that was rolled
/// back.
pub fn any_uncommitted(kb_no: i64) -> Result<bool> {
    spi::write_value(
        &format!(
            "SELECT EXISTS (SELECT FROM kb.jobs WHERE kb_no = $1 AND {IS_UNCOMMITTED})
                 OR EXISTS (SELECT FROM kb.runs WHERE kb_no = $1 AND {IS_UNCOMMITTED})"
        ),
        &[Arg::Long(kb_no)],
    )
}

/// The number of jobs of a knowledge base, counted up to 1,000.
pub fn waiting(kb_no: i64) -> Result<i64> {
    spi::read_value(
        "SELECT count(*) FROM (SELECT FROM kb.jobs WHERE kb_no = $1 LIMIT 1000) t",
        &[Arg::Long(kb_no)],
    )
}

/// The errors after which documents that the caller can see are waiting to be tried again, the most frequent
/// first: those of embedders, or all others.
pub fn last_errors(of_embedders: bool, limit: i64) -> Result<Vec<String>> {
    spi::read(
        "SELECT pg_catalog.format('%s (%s documents)', pg_catalog.left(error, 300), count(*)) FROM kb.jobs
         WHERE error IS NOT NULL AND (embedder IS NOT NULL) = $1
         GROUP BY pg_catalog.left(error, 300) ORDER BY count(*) DESC LIMIT $2",
        &[Arg::Bool(of_embedders), Arg::Long(limit)],
        Row::only,
    )
}
