//! The jobs of kb.jobs that may be worked on now. The cost of finding them depends on the number of due jobs,
//! not on the number of tenants and knowledge bases: knowledge bases without jobs are not visited, and every
//! step is one descent of an index.

use crate::jobs::sql::queue;
use crate::jobs::sql::queue::Job;
use crate::pg::row::from_row;
use crate::pg::setting;
use crate::pg::spi::{self, Arg, FromRow, Row};
use crate::sql::IN_ORDER;
use kb_types::error::Result;
use kb_types::row_states::Priority;
use std::time::Duration;

/// The condition that the index kb.jobs_due has.
const DUE: &str = "j.kind = $1 AND j.priority = $2 AND j.leased_until IS NULL AND j.next_attempt_at IS NULL";

/// Which jobs are looked for: those of one kind of work and one priority.
#[derive(Debug, Clone, Copy)]
pub struct JobClass {
    pub kind: &'static str,
    pub priority: Priority,
}

/// The most jobs that are made due at once, after a delay or a lease.
const RETURNED: i64 = 1000;

from_row! {
    /// The jobs of one tenant in one knowledge base. The tenant is that of the documents.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub struct Backlog {
        pub tenant_id: String,
        pub kb_no: i64,
    }
}

/// The tenants that have a due job, in order, from `after` on, or from the first for None.
pub fn tenants(which: JobClass, after: Option<&str>, limit: usize) -> Result<Vec<String>> {
    // No text is less than ''.
    let is_after = if after.is_some() { ">" } else { ">=" };
    setting::with(IN_ORDER, || {
        spi::write(
            &format!(
                "WITH RECURSIVE t AS (
                     (SELECT j.tenant_id FROM kb.jobs j WHERE {DUE} AND j.tenant_id {is_after} $3
                      ORDER BY j.tenant_id LIMIT 1)
                     UNION ALL
                     SELECT (SELECT j.tenant_id FROM kb.jobs j WHERE {DUE} AND j.tenant_id > t.tenant_id
                             ORDER BY j.tenant_id LIMIT 1)
                     FROM t WHERE t.tenant_id IS NOT NULL)
                 SELECT t.tenant_id FROM t WHERE t.tenant_id IS NOT NULL LIMIT $4"
            ),
            &[
                Arg::Text(which.kind),
                Arg::Int(which.priority.number()),
                Arg::Text(after.unwrap_or("")),
                Arg::Long(limit as i64),
            ],
            Row::only,
        )
    })
}

/// The tenant of some job. A worker begins with it, so that no tenant is always the first.
pub fn some_tenant() -> Result<Option<String>> {
    setting::with(IN_ORDER, || {
        spi::write_one(
            "SELECT j.tenant_id FROM kb.jobs j WHERE j.job_no >= (
                 SELECT b.first + pg_catalog.floor(pg_catalog.random() * (b.last - b.first))::bigint
                 FROM (SELECT (SELECT k.job_no FROM kb.jobs k ORDER BY k.job_no LIMIT 1) AS first,
                              (SELECT k.job_no FROM kb.jobs k ORDER BY k.job_no DESC LIMIT 1) AS last) b)
             ORDER BY j.job_no LIMIT 1",
            &[],
            Row::only,
        )
    })
}

/// The next knowledge bases of tenants, at most `each` of each tenant, after the kb_no that is given with the
/// tenant: one of each tenant, then a second one of each, and so on. With the embedders of their builds.
pub fn backlogs(
    which: JobClass,
    tenants: &[(String, i64)],
    each: usize,
) -> Result<Vec<(Backlog, Vec<String>)>> {
    let (names, after): (Vec<String>, Vec<i64>) = tenants.iter().cloned().unzip();
    setting::with(IN_ORDER, || {
        spi::write(
            &format!(
                "SELECT s.tenant_id, k.kb_no, (SELECT coalesce(pg_catalog.array_agg(b.embedder), '{{}}')
                     FROM kb.builds b WHERE b.kb_no = k.kb_no AND b.state <> 'old') AS embedders
                 FROM unnest($3::text[], $4::bigint[]) WITH ORDINALITY AS s (tenant_id, after, place)
                 CROSS JOIN LATERAL (
                     WITH RECURSIVE k AS (
                         (SELECT j.kb_no, 1 AS round FROM kb.jobs j
                          WHERE {DUE} AND j.tenant_id = s.tenant_id AND j.kb_no > s.after ORDER BY j.kb_no LIMIT 1)
                         UNION ALL
                         SELECT (SELECT j.kb_no FROM kb.jobs j
                                 WHERE {DUE} AND j.tenant_id = s.tenant_id AND j.kb_no > k.kb_no
                                 ORDER BY j.kb_no LIMIT 1), k.round + 1
                         FROM k WHERE k.kb_no IS NOT NULL AND k.round < $5)
                     SELECT k.kb_no, k.round FROM k WHERE k.kb_no IS NOT NULL) k
                 ORDER BY k.round, s.place"
            ),
            &[
                Arg::Text(which.kind),
                Arg::Int(which.priority.number()),
                Arg::Texts(&names),
                Arg::Longs(&after),
                Arg::Int(i32::try_from(each).unwrap_or(i32::MAX)),
            ],
            |row| Ok((Backlog::from_row(row)?, row.get("embedders")?)),
        )
    })
}

/// Limits which jobs [`claim`] takes.
#[derive(Debug, Default)]
pub struct Wanted {
    /// The most jobs, in all and of one backlog.
    pub limit: usize,
    pub share: usize,
    /// Embedders that are paused. A document that waits only for vectors of such an embedder is skipped.
    pub paused: Vec<String>,
    /// Embedders that are paused for single tenants, and these tenants.
    pub paused_for: (Vec<String>, Vec<String>),
}

/// Takes due jobs of these backlogs, in their order; of each backlog, those after its job_no in the order in
/// which they were enqueued. No aggregate has an ORDER BY, because from PostgreSQL 16 on the planner would
/// walk all builds in that order.
pub fn claim(
    which: JobClass,
    backlogs: &[(Backlog, i64)],
    wanted: &Wanted,
    lease: Duration,
) -> Result<Vec<Job>> {
    let mut columns = (Vec::new(), Vec::new(), Vec::new());
    for (backlog, floor) in backlogs {
        columns.0.push(backlog.tenant_id.clone());
        columns.1.push(backlog.kb_no);
        columns.2.push(*floor);
    }
    setting::with(IN_ORDER, || {
        spi::write(
            &format!(
                "UPDATE kb.jobs j SET leased_until = now() + pg_catalog.make_interval(secs => $6), attempts = attempts + 1
                 WHERE j.job_no = ANY (ARRAY(
                     SELECT d.job_no
                     FROM (SELECT u.tenant_id, u.kb_no, u.floor, (
                               SELECT coalesce(pg_catalog.bool_or(p.is_paused) FILTER (WHERE b.state = 'next'),
                                               pg_catalog.bool_or(p.is_paused))
                               FROM kb.builds b
                               CROSS JOIN LATERAL (
                                   SELECT b.embedder = ANY ($9) OR (b.embedder, b.tenant_id) IN (
                                       SELECT p.embedder, p.tenant
                                       FROM unnest($10::text[], $11::text[]) AS p (embedder, tenant)) AS is_paused) p
                               WHERE b.kb_no = u.kb_no AND b.state <> 'old') AS is_paused
                           FROM unnest($3::text[], $4::bigint[], $5::bigint[]) WITH ORDINALITY
                               AS u (tenant_id, kb_no, floor, place)
                           ORDER BY u.place) u
                     CROSS JOIN LATERAL (
                         SELECT j.job_no FROM kb.jobs j
                         WHERE {DUE} AND j.tenant_id = u.tenant_id AND j.kb_no = u.kb_no AND j.job_no > u.floor
                           AND NOT (u.is_paused IS TRUE AND j.chunked IS NOT DISTINCT FROM j.generation)
                         ORDER BY j.job_no LIMIT $7 FOR UPDATE SKIP LOCKED) d
                     LIMIT $8))
                 RETURNING {}",
                queue::COLUMNS
            ),
            &[
                Arg::Text(which.kind),
                Arg::Int(which.priority.number()),
                Arg::Texts(&columns.0),
                Arg::Longs(&columns.1),
                Arg::Longs(&columns.2),
                Arg::Double(lease.as_secs_f64()),
                Arg::Long(wanted.share as i64),
                Arg::Long(wanted.limit as i64),
                Arg::Texts(&wanted.paused),
                Arg::Texts(&wanted.paused_for.0),
                Arg::Texts(&wanted.paused_for.1),
            ],
            queue::job,
        )
    })
}

/// Makes delayed jobs due when their time has come, except those that a transaction has locked.
pub fn return_delayed() -> Result<()> {
    return_by("next_attempt_at")
}

/// Ends leases that have expired. The worker could not renew these because a transaction had locked the jobs.
pub fn return_expired() -> Result<()> {
    return_by("leased_until")
}

fn return_by(column: &str) -> Result<()> {
    setting::with(IN_ORDER, || {
        spi::execute(
            &format!(
                "UPDATE kb.jobs SET {column} = NULL WHERE job_no = ANY (ARRAY(
                     SELECT j.job_no FROM kb.jobs j WHERE j.{column} <= now()
                     ORDER BY j.{column} LIMIT $1 FOR UPDATE SKIP LOCKED))"
            ),
            &[Arg::Long(RETURNED)],
        )
    })?;
    Ok(())
}
