//! kb.jobs: the queue.

use crate::error::Result;
use crate::pg::spi::{self, Arg, Row};
use std::collections::HashSet;
use std::time::Duration;

/// A document that a worker holds a lease on.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    pub kb_no: i64,
    pub external_id: String,
    pub generation: i64,
    pub attempts: i32,
    pub run_no: Option<i64>,
    /// [`LIVE`] or [`BACKFILL`].
    pub priority: i32,
    /// Its place in the queue.
    pub job_no: i64,
}

/// Priority of an edit somebody just made.
pub const LIVE: i32 = 0;
/// Priority of documents that a run takes up again.
pub const BACKFILL: i32 = 10;

/// Upserts one job per document; one that is there, claimed or not, gets a new generation.
pub fn enqueue(
    kb_no: i64,
    tenant_id: &str,
    external_ids: &[String],
    priority: i32,
    run_no: Option<i64>,
) -> Result<()> {
    spi::execute(
        "INSERT INTO kb.jobs AS j (kb_no, tenant_id, external_id, priority, run_no)
         SELECT $1, $2, u, $4, $5 FROM pg_catalog.unnest($3::text[]) AS u
         ON CONFLICT (kb_no, external_id) DO UPDATE SET generation = EXCLUDED.generation,
             priority = least(j.priority, EXCLUDED.priority), attempts = 0, next_attempt_at = now(), error = NULL,
             chunked = NULL,
             run_no = coalesce(EXCLUDED.run_no, j.run_no)",
        &[
            Arg::Long(kb_no),
            Arg::Text(tenant_id),
            Arg::Texts(external_ids),
            Arg::Int(priority),
            Arg::LongOrNull(run_no),
        ],
    )?;
    Ok(())
}

/// Which jobs [`claim`] takes.
#[derive(Debug, Default)]
pub struct Wanted {
    /// [`LIVE`] or [`BACKFILL`].
    pub priority: i32,
    /// Jobs at most, in all and of one knowledge base.
    pub limit: i64,
    pub share: i64,
    /// Another number each time: it decides whose turn it is.
    pub turn: i64,
    /// Knowledge base and job_no below which nothing is looked for: what was claimed leaves dead rows, which an old
    /// snapshot anywhere keeps from being cleaned up.
    pub floors: (Vec<i64>, Vec<i64>),
    /// Embedders whose knowledge bases are passed over.
    pub busy: Vec<String>,
    /// Embedders for whose vectors alone no document is taken.
    pub paused: Vec<String>,
    /// Embedders that are paused for one tenant, and the tenants.
    pub paused_for: (Vec<String>, Vec<String>),
}

/// Takes due jobs, in the order in which they came.
pub fn claim(wanted: &Wanted, lease: Duration) -> Result<Vec<Job>> {
    spi::write(
        "WITH due AS (
             SELECT j.kb_no, j.external_id
             FROM (SELECT k.kb_no, coalesce(f.floor, 0) AS floor, (
                       SELECT b.embedder = ANY ($6)
                           OR (b.embedder, k.tenant_id) IN (SELECT p.embedder, p.tenant
                               FROM unnest($10::text[], $11::text[]) AS p (embedder, tenant))
                       FROM kb.builds b
                       WHERE b.kb_no = k.kb_no AND b.state <> 'old' ORDER BY b.build_no DESC LIMIT 1) AS paused
                   FROM kb.knowledge_bases k
                   LEFT JOIN unnest($7::bigint[], $8::bigint[]) AS f (kb_no, floor) ON f.kb_no = k.kb_no
                   WHERE NOT EXISTS (SELECT FROM kb.builds b WHERE b.kb_no = k.kb_no
                         AND b.state <> 'old' AND b.embedder = ANY ($5))
                   -- One knowledge base of each tenant, then a second one of each, all in an order drawn anew.
                   ORDER BY row_number() OVER (PARTITION BY k.tenant_id ORDER BY pg_catalog.hashint8extended(k.kb_no, $1)),
                            pg_catalog.hashtextextended(k.tenant_id, $1)) k
             CROSS JOIN LATERAL (
                 SELECT j.kb_no, j.external_id FROM kb.jobs j
                 WHERE j.kb_no = k.kb_no AND j.priority = $9 AND j.job_no > k.floor AND j.next_attempt_at <= now()
                   AND (j.leased_until IS NULL OR j.leased_until < now())
                   AND NOT (k.paused AND j.chunked IS NOT DISTINCT FROM j.generation)
                 ORDER BY j.job_no LIMIT $2 FOR UPDATE SKIP LOCKED) j
             LIMIT $3)
         UPDATE kb.jobs j SET leased_until = now() + pg_catalog.make_interval(secs => $4), attempts = attempts + 1
         FROM due WHERE j.kb_no = due.kb_no AND j.external_id = due.external_id
         RETURNING j.kb_no, j.external_id, j.generation, j.attempts, j.run_no, j.priority::int, j.job_no",
        &[
            Arg::Long(wanted.turn),
            Arg::Long(wanted.share),
            Arg::Long(wanted.limit),
            Arg::Double(lease.as_secs_f64()),
            Arg::Texts(&wanted.busy),
            Arg::Texts(&wanted.paused),
            Arg::Longs(&wanted.floors.0),
            Arg::Longs(&wanted.floors.1),
            Arg::Int(wanted.priority),
            Arg::Texts(&wanted.paused_for.0),
            Arg::Texts(&wanted.paused_for.1),
        ],
        job,
    )
}

/// Keeps the leases of jobs that are being worked on, but for those that an open transaction has.
pub fn extend(jobs: &[Job], lease: Duration) -> Result<()> {
    let (kbs, ids) = keys(jobs);
    spi::execute(
        "UPDATE kb.jobs j SET leased_until = now() + pg_catalog.make_interval(secs => $3)
         FROM (SELECT j.kb_no, j.external_id FROM unnest($1::bigint[], $2::text[], $4::bigint[]) AS u (kb_no, external_id, job_no)
               JOIN kb.jobs j ON j.kb_no = u.kb_no AND j.external_id = u.external_id AND j.job_no = u.job_no
               FOR UPDATE OF j SKIP LOCKED) u
         WHERE j.kb_no = u.kb_no AND j.external_id = u.external_id",
        &[Arg::Longs(&kbs), Arg::Texts(&ids), Arg::Double(lease.as_secs_f64()), Arg::Longs(&numbers(jobs))],
    )?;
    Ok(())
}

fn keys(jobs: &[Job]) -> (Vec<i64>, Vec<String>) {
    jobs.iter().map(|job| (job.kb_no, job.external_id.clone())).unzip()
}

/// The job of a document that was deleted and put again has another one.
fn numbers(jobs: &[Job]) -> Vec<i64> {
    jobs.iter().map(|job| job.job_no).collect()
}

/// Deletes jobs that nobody touched since they were claimed; the others are given back at once, to be
/// done again under the new generation. The (kb_no, external_id) of the deleted. Call with their documents locked.
pub fn finish(jobs: &[Job]) -> Result<Vec<(i64, String)>> {
    let (kbs, ids) = keys(jobs);
    let generations: Vec<i64> = jobs.iter().map(|job| job.generation).collect();
    let finished = spi::write(
        "DELETE FROM kb.jobs j USING unnest($1::bigint[], $2::text[], $3::bigint[])
             AS u (kb_no, external_id, generation)
         WHERE j.kb_no = u.kb_no AND j.external_id = u.external_id AND j.generation = u.generation
         RETURNING j.kb_no, j.external_id",
        &[Arg::Longs(&kbs), Arg::Texts(&ids), Arg::Longs(&generations)],
        |row| Ok((row.get::<i64>(0)?, row.get::<String>(1)?)),
    )?;
    if finished.len() < jobs.len() {
        release(jobs, Duration::ZERO, None, false)?;
    }
    Ok(finished)
}

/// Gives jobs back, to be tried again after `delay`; those edited meanwhile at once, and what went wrong with the
/// text before is not said of them. An attempt that does not `count` is taken off again. Returned are those that could
/// not be given back, for a transaction that is not over has them.
pub fn release(jobs: &[Job], delay: Duration, error: Option<&str>, count: bool) -> Result<Vec<Job>> {
    give_back(jobs, delay, error, count, false)
}

/// Gives back jobs whose chunks are written and whose embedder is paused; the attempt does not count. As [`release`].
pub fn pause(jobs: &[Job], delay: Duration, error: &str) -> Result<Vec<Job>> {
    give_back(jobs, delay, Some(error), false, true)
}

fn give_back(
    jobs: &[Job],
    delay: Duration,
    error: Option<&str>,
    count: bool,
    chunked: bool,
) -> Result<Vec<Job>> {
    let (kbs, ids) = keys(jobs);
    let generations: Vec<i64> = jobs.iter().map(|job| job.generation).collect();
    let given: HashSet<i64> = spi::write(
        "UPDATE kb.jobs j SET leased_until = NULL,
             error = CASE WHEN j.generation = u.generation THEN $4 END,
             next_attempt_at = CASE WHEN j.generation = u.generation
                 THEN now() + pg_catalog.make_interval(secs => $5) ELSE now() END,
             attempts = CASE WHEN $6 THEN attempts ELSE greatest(attempts - 1, 0) END,
             chunked = CASE WHEN $7 AND j.generation = u.generation THEN u.generation ELSE j.chunked END
         FROM (SELECT u.kb_no, u.external_id, u.generation
               FROM unnest($1::bigint[], $2::text[], $3::bigint[], $8::bigint[]) AS u (kb_no, external_id, generation, job_no)
               JOIN kb.jobs j ON j.kb_no = u.kb_no AND j.external_id = u.external_id AND j.job_no = u.job_no
               FOR UPDATE OF j SKIP LOCKED) u
         WHERE j.kb_no = u.kb_no AND j.external_id = u.external_id
         RETURNING j.job_no",
        &[
            Arg::Longs(&kbs),
            Arg::Texts(&ids),
            Arg::Longs(&generations),
            Arg::TextOrNull(error),
            Arg::Double(delay.as_secs_f64()),
            Arg::Bool(count),
            Arg::Bool(chunked),
            Arg::Longs(&numbers(jobs)),
        ],
        |row| row.get::<i64>(0),
    )?
    .into_iter()
    .collect();
    if given.len() == jobs.len() {
        return Ok(Vec::new());
    }
    // A document that was deleted has no job any more.
    let there: HashSet<i64> = spi::write(
        "SELECT j.job_no FROM unnest($1::bigint[], $2::text[]) AS u (kb_no, external_id)
         JOIN kb.jobs j USING (kb_no, external_id)",
        &[Arg::Longs(&kbs), Arg::Texts(&ids)],
        |row| row.get::<i64>(0),
    )?
    .into_iter()
    .collect();
    let is_left = |job: &&Job| there.contains(&job.job_no) && !given.contains(&job.job_no);
    Ok(jobs.iter().filter(is_left).cloned().collect())
}

/// Has every job that nobody works on tried now; one that is just being enqueued is, anyway. As the owner.
pub fn make_due() -> Result<()> {
    spi::execute(
        "UPDATE kb.jobs SET next_attempt_at = now(), chunked = NULL WHERE (kb_no, external_id) IN (
             SELECT kb_no, external_id FROM kb.jobs WHERE leased_until IS NULL FOR UPDATE SKIP LOCKED)",
        &[],
    )?;
    Ok(())
}

/// The same for documents that wait for one embedder. As the owner.
pub fn make_due_of(embedder: &str) -> Result<()> {
    spi::execute(
        "UPDATE kb.jobs SET next_attempt_at = now(), chunked = NULL WHERE (kb_no, external_id) IN (
             SELECT kb_no, external_id FROM kb.jobs WHERE leased_until IS NULL
             AND kb_no IN (SELECT kb_no FROM kb.builds WHERE embedder = $1 AND state <> 'old')
             FOR UPDATE SKIP LOCKED)",
        &[Arg::Text(embedder)],
    )?;
    Ok(())
}

/// Ends every lease, to be tried again after `delay`; see [`release`]. A database has one worker at a time
/// (its pid file says so), so what is leased was leased by the caller or by a dead one. Returned are those that an open
/// transaction has.
pub fn release_all(delay: Duration, error: Option<&str>, count: bool) -> Result<Vec<Job>> {
    spi::execute(
        "UPDATE kb.jobs SET leased_until = NULL, error = $2,
             next_attempt_at = now() + pg_catalog.make_interval(secs => $1),
             attempts = CASE WHEN $3 THEN attempts ELSE greatest(attempts - 1, 0) END
         WHERE (kb_no, external_id) IN (
             SELECT kb_no, external_id FROM kb.jobs WHERE leased_until IS NOT NULL FOR UPDATE SKIP LOCKED)",
        &[Arg::Double(delay.as_secs_f64()), Arg::TextOrNull(error), Arg::Bool(count)],
    )?;
    spi::write(
        "SELECT kb_no, external_id, generation, attempts, run_no, priority::int, job_no FROM kb.jobs
         WHERE leased_until IS NOT NULL",
        &[],
        job,
    )
}

/// A job over which a worker died, by its place in the queue. Its attempt counts, though the crash may have lost the
/// claim.
pub fn take_over(job_no: i64) -> Result<Option<Job>> {
    spi::write_one(
        "UPDATE kb.jobs SET attempts = attempts + (leased_until IS NULL)::int, leased_until = coalesce(leased_until, now())
         WHERE (kb_no, external_id) = (
             SELECT kb_no, external_id FROM kb.jobs WHERE job_no = $1 FOR UPDATE SKIP LOCKED)
         RETURNING kb_no, external_id, generation, attempts, run_no, priority::int, job_no",
        &[Arg::Long(job_no)],
        job,
    )
}

/// Jobs that were tried often enough.
pub fn exhausted(max_attempts: i32) -> Result<Vec<Job>> {
    spi::write(
        "SELECT kb_no, external_id, generation, attempts, run_no, priority::int, job_no FROM kb.jobs WHERE attempts >= $1 LIMIT 1000",
        &[Arg::Int(max_attempts)],
        job,
    )
}

fn job(row: &Row) -> Result<Job> {
    Ok(Job {
        kb_no: row.get(0)?,
        external_id: row.get(1)?,
        generation: row.get(2)?,
        attempts: row.get(3)?,
        run_no: row.opt(4)?,
        priority: row.get(5)?,
        job_no: row.get(6)?,
    })
}

/// Whether any job is there, due or not.
pub fn any() -> Result<bool> {
    Ok(spi::write_one("SELECT EXISTS (SELECT FROM kb.jobs)", &[], |row| row.get::<bool>(0))?.unwrap_or(false))
}

/// Whether the caller can see any job. Works on a standby.
pub fn any_visible() -> Result<bool> {
    Ok(spi::read_one("SELECT EXISTS (SELECT FROM kb.jobs)", &[], |row| row.get::<bool>(0))?.unwrap_or(false))
}

/// Whether this transaction has enqueued a job or begun a run that stands (a rolled-back savepoint's does
/// not). A row that is visible though its transaction is in progress is the caller's own.
pub fn any_uncommitted(kb_no: i64) -> Result<bool> {
    let own = "pg_catalog.pg_xact_status((((pg_catalog.pg_current_xact_id()::text::bigint >> 32) << 32)
        + xmin::text::bigint)::text::xid8) = 'in progress'";
    let found = spi::write_one(
        &format!(
            "SELECT EXISTS (SELECT FROM kb.jobs WHERE kb_no = $1 AND {own})
                 OR EXISTS (SELECT FROM kb.runs WHERE kb_no = $1 AND {own})"
        ),
        &[Arg::Long(kb_no)],
        |row| row.get::<bool>(0),
    )?;
    Ok(found.unwrap_or(false))
}

/// Jobs of a knowledge base, counted up to 1,000.
pub fn waiting(kb_no: i64) -> Result<i64> {
    let found = spi::read_one(
        "SELECT count(*) FROM (SELECT FROM kb.jobs WHERE kb_no = $1 LIMIT 1000) t",
        &[Arg::Long(kb_no)],
        |row| row.get::<i64>(0),
    )?;
    Ok(found.unwrap_or(0))
}

/// What documents the caller can see are waiting for after a failed attempt, the most frequent first: errors of
/// embedders, or all others.
pub fn last_errors(of_embedders: bool, limit: i64) -> Result<Vec<String>> {
    spi::read(
        "SELECT pg_catalog.format('%s (%s documents)', pg_catalog.left(error, 300), count(*)) FROM kb.jobs
         WHERE pg_catalog.starts_with(error, 'embedder \"') = $1
         GROUP BY pg_catalog.left(error, 300) ORDER BY count(*) DESC LIMIT $2",
        &[Arg::Bool(of_embedders), Arg::Long(limit)],
        |row| row.get(0),
    )
}
