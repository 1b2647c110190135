//! Which jobs come next: live edits before backfill, each tenant and each of its knowledge bases in turn.
//!
//! Tenants with due jobs are found by descents of the partial index `jobs_due`, so a knowledge base without
//! jobs costs nothing. Delayed and leased jobs are not in that index; they are made due again when their time
//! has come. A claim passes over jobs that have their chunks and only wait for vectors of a paused embedder.
//! Each kind of work claims its own jobs, in turns of its own: none waits for another that has enough.

use super::round_robin::{Member, RoundRobin, Turn};
use crate::jobs::due_jobs;
use crate::jobs::due_jobs::{Backlog, JobClass, Wanted};
use crate::jobs::queue::Job;
use crate::pg::txn;
use crate::upkeep::Pace;
use crate::work::Paused;
use kb_types::error::Result;
use kb_types::row_states::Priority;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// How often a backlog is searched from its beginning.
const FROM_START: Duration = Duration::from_secs(2);
/// How often to look for tenants with due jobs while turns are left.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often jobs are made due again whose delay, or whose lease, is over.
const DELAYED_EVERY: Duration = Duration::from_millis(250);
const EXPIRED_EVERY: Duration = Duration::from_secs(2);
/// About how many turns are kept.
const TURNS: usize = 256;
/// Maximum number of turns that one claim takes, so that many backlogs of one job each are claimed at once.
const TURNS_AT_ONCE: usize = 64;
/// Maximum number of lookups and claims of one call that finds nothing.
const ROUNDS: usize = 8;

impl Member for Backlog {
    fn group(&self) -> &str {
        &self.tenant_id
    }
}

/// The embedders and knowledge bases for which nothing is claimed for now.
#[derive(Default)]
pub struct Busy {
    pub embedders: Vec<String>,
    pub knowledge_bases: Vec<i64>,
}

#[derive(Default)]
pub struct Claims {
    /// By kind of work: the turns of live edits, and those of backfill.
    turns: HashMap<&'static str, [Turns; 2]>,
    delayed: Pace,
    expired: Pace,
}

/// Whose turn it is, of one kind of work and one priority.
struct Turns {
    which: JobClass,
    waiting: RoundRobin<Backlog>,
    /// The last tenant that was found; None: the next look begins at the first.
    after: Option<String>,
    /// For tenants of which not all knowledge bases were looked at, the last one that was.
    after_kb: HashMap<String, i64>,
    /// The embedders of knowledge bases that wait, as they were when they were looked for.
    embedders: HashMap<i64, Vec<String>>,
    looked: Pace,
    from_start: Option<Instant>,
}

impl Claims {
    /// Claims at most `limit` jobs of a kind of work, no more than `share` of one backlog. Passed over are
    /// knowledge bases that are `busy`, or have an embedder that is, and documents that only wait for vectors
    /// of one `paused`.
    pub fn claim(
        &mut self,
        kind: &'static str,
        limit: usize,
        share: usize,
        lease: Duration,
        busy: Busy,
        paused: Paused,
    ) -> Result<Vec<Job>> {
        let begun = Instant::now();
        if self.delayed.is_due(DELAYED_EVERY, begun) {
            txn::in_txn(due_jobs::return_delayed)?;
            self.delayed.note(begun, Instant::now());
        }
        let begun = Instant::now();
        if self.expired.is_due(EXPIRED_EVERY, begun) {
            txn::in_txn(due_jobs::return_expired)?;
            self.expired.note(begun, Instant::now());
        }
        let Paused { of_all: paused, of_one: paused_for } = paused;
        let mut wanted = Wanted { limit: 0, share, paused, paused_for };
        let mut claimed = Vec::new();
        // A quarter is kept for backfill: otherwise a steady stream of edits would keep it waiting for ever.
        let new =
            || [Priority::Live, Priority::Backfill].map(|priority| Turns::new(JobClass { kind, priority }));
        let turns = self.turns.entry(kind).or_insert_with(new);
        for (turns, most) in turns.iter_mut().zip([limit - limit / 4, limit]) {
            wanted.limit = most.saturating_sub(claimed.len());
            match turns.claim(&mut wanted, &busy, lease) {
                (jobs, Ok(())) => claimed.extend(jobs),
                // The jobs that are claimed already are leased and must not be lost.
                (jobs, Err(error)) => {
                    claimed.extend(jobs);
                    return if claimed.is_empty() { Err(error) } else { Ok(claimed) };
                }
            }
        }
        Ok(claimed)
    }
}

impl Turns {
    fn new(which: JobClass) -> Turns {
        Turns {
            which,
            waiting: RoundRobin::default(),
            after: None,
            after_kb: HashMap::new(),
            embedders: HashMap::new(),
            looked: Pace::default(),
            from_start: None,
        }
    }

    /// Claims as many jobs as are wanted at most; what was claimed before an error, too.
    fn claim(&mut self, wanted: &mut Wanted, busy: &Busy, lease: Duration) -> (Vec<Job>, Result<()>) {
        let mut claimed: Vec<Job> = Vec::new();
        let mut tried = HashSet::new();
        for _ in 0..ROUNDS {
            if wanted.limit == 0 {
                break;
            }
            if let Err(error) = self.look_if_due(busy) {
                return (claimed, Err(error));
            }
            let embedders = &self.embedders;
            let taken = self.waiting.take(TURNS_AT_ONCE, |backlog| !is_busy(embedders, backlog, busy));
            let is_new = taken.iter().filter(|turn| tried.insert(turn.whose.clone())).count() > 0;
            match self.claim_in_turn(taken, wanted, lease) {
                Ok(jobs) if jobs.is_empty() && !is_new => break,
                Ok(jobs) => {
                    wanted.limit -= jobs.len().min(wanted.limit);
                    claimed.extend(jobs);
                }
                Err(error) => return (claimed, Err(error)),
            }
        }
        (claimed, Ok(()))
    }

    fn claim_in_turn(
        &mut self,
        taken: Vec<Turn<Backlog>>,
        wanted: &Wanted,
        lease: Duration,
    ) -> Result<Vec<Job>> {
        if taken.is_empty() {
            return Ok(Vec::new());
        }
        let backlogs: Vec<(Backlog, i64)> =
            taken.iter().map(|turn| (turn.whose.clone(), turn.floor)).collect();
        let jobs = txn::in_txn(|| due_jobs::claim(self.which, &backlogs, wanted, lease))?;
        let claimed: Vec<(Backlog, i64)> = jobs
            .iter()
            .map(|job| (Backlog { tenant_id: job.tenant_id.clone(), kb_no: job.kb_no }, job.job_no))
            .collect();
        self.waiting.give_back(taken, &claimed, wanted.share, jobs.len() >= wanted.limit);
        Ok(jobs)
    }

    /// Looks for tenants with due jobs, if none are known.
    fn look_if_due(&mut self, busy: &Busy) -> Result<()> {
        let now = Instant::now();
        if self.from_start.is_none_or(|at| now.duration_since(at) > FROM_START) {
            self.from_start = Some(now);
            self.waiting.start_again();
        }
        let every = if self.waiting.is_empty() { Duration::ZERO } else { LOOK_EVERY };
        let is_due = self.looked.is_due(every, now);
        let embedders = &self.embedders;
        let is_free = |backlog: &Backlog| !is_busy(embedders, backlog, busy);
        if !is_due || self.waiting.count(is_free) >= TURNS {
            return Ok(());
        }
        if self.waiting.len() >= TURNS {
            // Room for others, who may be free; these are found again.
            self.waiting.retain(is_free);
        }
        if self.waiting.is_empty() {
            self.embedders.clear();
        }
        if self.looked.is_first() {
            self.after = txn::in_txn(due_jobs::some_tenant)?;
        }
        txn::in_txn(|| self.look())?;
        self.looked.note(now, Instant::now());
        Ok(())
    }

    /// Adds the next turns: of the tenants after the last one that was found, one knowledge base of each,
    /// then a second one of each.
    fn look(&mut self) -> Result<()> {
        let mut tenants = due_jobs::tenants(self.which, self.after.as_deref(), TURNS)?;
        if tenants.is_empty() && self.after.is_some() {
            tenants = due_jobs::tenants(self.which, None, TURNS)?;
        }
        // The last ones may have been reached: then the next look begins at the first.
        self.after = tenants.last().cloned().filter(|_| tenants.len() == TURNS);
        if tenants.is_empty() {
            self.after_kb.clear();
            return Ok(());
        }
        let each = TURNS.div_ceil(tenants.len());
        let with_kb = |tenant: String| {
            let after = self.after_kb.get(&tenant).copied().unwrap_or(0);
            (tenant, after)
        };
        let from: Vec<(String, i64)> = tenants.into_iter().map(with_kb).collect();
        let ended = self.add_backlogs(from, each)?;
        // After its last knowledge bases come its first ones.
        let from: Vec<_> =
            ended.into_iter().filter(|(_, after)| *after > 0).map(|(tenant, _)| (tenant, 0)).collect();
        if !from.is_empty() {
            self.add_backlogs(from, each)?;
        }
        Ok(())
    }

    /// Adds turns of these tenants' knowledge bases after the given ones. Returns the tenants that have no
    /// more.
    fn add_backlogs(&mut self, from: Vec<(String, i64)>, each: usize) -> Result<Vec<(String, i64)>> {
        let found = due_jobs::backlogs(self.which, &from, each)?;
        let mut of_tenant: HashMap<&str, (usize, i64)> = HashMap::new();
        for (backlog, _) in &found {
            let (count, last) = of_tenant.entry(&backlog.tenant_id).or_default();
            *count += 1;
            *last = backlog.kb_no;
        }
        let mut ended = Vec::new();
        for (tenant, after) in from {
            match of_tenant.get(tenant.as_str()) {
                Some((count, last)) if *count == each => drop(self.after_kb.insert(tenant, *last)),
                _ => {
                    self.after_kb.remove(&tenant);
                    ended.push((tenant, after));
                }
            }
        }
        for (backlog, embedders) in found {
            self.embedders.insert(backlog.kb_no, embedders);
            self.waiting.add([backlog]);
        }
        Ok(ended)
    }
}

/// Whether a knowledge base or one of its embedders is busy.
fn is_busy(embedders: &HashMap<i64, Vec<String>>, backlog: &Backlog, busy: &Busy) -> bool {
    let own = embedders.get(&backlog.kb_no);
    let has_busy = |own: &Vec<String>| own.iter().any(|embedder| busy.embedders.contains(embedder));
    busy.knowledge_bases.contains(&backlog.kb_no) || !busy.embedders.is_empty() && own.is_some_and(has_busy)
}
