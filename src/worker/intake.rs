//! From the queue to chunks: claims jobs, reads and prepares documents in groups, writes their chunks.

use super::document::{self, Intake, Prepared, Targets};
use super::flights::Group;
use super::offload::{self, Offloaded};
use super::outcome::{self, BUSY, fail, hold_up};
use super::runner::Runner;
use crate::error::{Error, Result};
use crate::model::Embedder;
use crate::pg::pidfile::{self, Activity};
use crate::pg::txn;
use crate::settings;
use crate::store::documents::Locked;
use crate::store::embedders;
use crate::store::jobs::{self, Job};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// Documents under way at most: in all, of one local and of one remote embedder, so that a slow provider delays only
/// its own; and of one knowledge base per claim.
const OPEN_DOCUMENTS: usize = 4096;
const OPEN_LOCAL: usize = 64;
const OPEN_REMOTE: usize = 768;
const SHARE: usize = 32;
/// Documents claimed at a time.
const CLAIM: usize = 64;
/// A group of documents is prepared together up to this many bytes.
const GROUP_BYTES: usize = 2 * 1024 * 1024;
const GROUP_DOCUMENTS: usize = 32;
/// Documents that are remembered for having been in an open transaction.
const FOUND_BUSY: usize = 100_000;
/// How often paused embedders are compared with what they are now.
const LOOK_AT_PAUSED: Duration = Duration::from_secs(1);

/// A group of documents that is being prepared.
pub(super) struct Preparing {
    pub(super) jobs: Vec<Job>,
    pub(super) results: Offloaded<Vec<Result<Prepared, (Job, Error)>>>,
}

impl Runner {
    /// Claims jobs, and reads, prepares and writes documents in groups; while one group is written the next is prepared.
    pub(super) fn take_in(&mut self) -> Result<bool> {
        let mut results = None;
        if let Some(preparing) = &mut self.preparing {
            match preparing.results.take() {
                None => return Ok(false),
                Some(prepared) => {
                    let given_up = preparing.jobs.is_empty();
                    self.preparing = None;
                    results = (!given_up).then_some(prepared).transpose()?;
                }
            }
        }
        let begun = if self.leaving.is_none() { self.prepare_next() } else { Ok(false) };
        // Though no more can be prepared, what is done is written.
        let Some(results) = results else { return begun };
        let mut prepared = Vec::new();
        for result in results {
            match result {
                Ok(document) => prepared.push(document),
                Err((job, error)) => fail(&job, &error)?,
            }
        }
        self.write_group(prepared, &mut HashMap::new())?;
        begun.map(|_| true)
    }

    /// Claims jobs if none is left, reads a group of documents and has it prepared; false when there is none.
    fn prepare_next(&mut self) -> Result<bool> {
        let room = OPEN_DOCUMENTS.saturating_sub(self.flights.open.len());
        if self.claimed.is_empty() && room > 0 {
            self.look_at_paused()?;
            // No embedder takes more than half of what is left, so that however many are stuck another finds room.
            let busy = self.flights.busy(OPEN_LOCAL, OPEN_REMOTE.min(room / 2));
            let now = Instant::now();
            self.paused.retain(|_, (until, ..)| *until > now);
            let (of_all, of_one): (Vec<_>, Vec<_>) =
                self.paused.keys().cloned().partition(|(_, tenant)| tenant.is_none());
            let paused = of_all.into_iter().map(|(id, _)| id).collect();
            let paused_for = of_one.into_iter().map(|(id, tenant)| (id, tenant.unwrap_or_default())).unzip();
            let lease = settings::lease_duration();
            let (most, share) = (CLAIM.min(room), SHARE.min(room));
            self.claimed.extend(self.claims.claim(most, share, lease, busy, paused, paused_for)?);
        }
        if self.claimed.is_empty() {
            return Ok(false);
        }
        let intakes = self.read_group()?;
        let jobs: Vec<Job> = intakes.iter().map(|intake| intake.job.clone()).collect();
        if jobs.is_empty() {
            return Ok(true);
        }
        let model_dir = settings::model_dir();
        let limits = settings::limits(|| {});
        let results = offload::begin(move || {
            let prepare = |intake: Intake| {
                pidfile::note(Activity::Prepare, Some(intake.job.job_no));
                document::prepare(intake, &model_dir, limits)
            };
            let results = intakes.into_iter().map(prepare).collect();
            pidfile::note(Activity::Prepare, None);
            results
        })?;
        self.preparing = Some(Preparing { jobs, results });
        Ok(true)
    }

    /// An embedder that was altered is no longer paused, nor are documents that came back paused from it as it was,
    /// perhaps after the change.
    fn look_at_paused(&mut self) -> Result<()> {
        if self.paused.is_empty() || self.paused_looked.elapsed() < LOOK_AT_PAUSED {
            return Ok(());
        }
        self.paused_looked = Instant::now();
        let mut altered = BTreeSet::new();
        let mut found: HashMap<&str, Option<Embedder>> = HashMap::new();
        for ((id, _), (_, embedder, _)) in &self.paused {
            let now = match found.get(id.as_str()) {
                Some(now) => now,
                None => {
                    let now = txn::in_txn(|| embedders::find(id))?;
                    found.entry(id).or_insert(now)
                }
            };
            if now.as_ref() != Some(embedder) {
                altered.insert(id.clone());
            }
        }
        for id in altered {
            txn::in_txn(|| jobs::make_due_of(&id))?;
            self.paused.retain(|(of, _), _| *of != id);
        }
        Ok(())
    }

    /// Reads documents up to a bound of bytes; if one cannot be read, each alone.
    fn read_group(&mut self) -> Result<Vec<Intake>> {
        let count = self.claimed.len().min(GROUP_DOCUMENTS);
        let mut group: Vec<Job> = self.claimed.drain(..count).collect();
        if let Ok((intakes, left)) = txn::in_txn(|| read_some(&group, GROUP_BYTES)) {
            for job in group.drain(..).rev().take(left) {
                self.claimed.push_front(job);
            }
            return Ok(intakes);
        }
        let mut intakes = Vec::new();
        for job in group {
            match txn::in_txn(|| read_some(std::slice::from_ref(&job), GROUP_BYTES)) {
                Ok((read, _)) => intakes.extend(read),
                Err(error) => fail(&job, &error)?,
            }
        }
        Ok(intakes)
    }

    /// Writes a group in one commit; if that fails, each alone, so that one bad document costs no other.
    fn write_group(&mut self, prepared: Vec<Prepared>, locked: &mut HashMap<i64, Error>) -> Result<()> {
        if prepared.is_empty() {
            return Ok(());
        }
        if let [document] = &prepared[..] {
            pidfile::note(Activity::Write, Some(document.job.job_no));
        }
        let result = txn::in_txn(|| document::write(&prepared));
        pidfile::note(Activity::Write, None);
        match result {
            Ok(written) => {
                for (target, diff) in prepared.iter().flat_map(|document| &document.targets) {
                    self.growth.add(diff.insert.len(), &target.build.table.table_name);
                }
                self.growth.look();
                self.follow(prepared, &written)
            }
            Err(_) if prepared.len() > 1 => {
                for document in prepared {
                    // One wait for a lock is enough for all documents of a knowledge base.
                    match locked.get(&document.job.kb_no) {
                        Some(error) => fail(&document.job, error)?,
                        None => self.write_group(vec![document], locked)?,
                    }
                }
                Ok(())
            }
            Err(error) => {
                for document in &prepared {
                    fail(&document.job, &error)?;
                    if error.is_lock() {
                        locked.insert(document.job.kb_no, error.clone());
                    }
                }
                Ok(())
            }
        }
    }

    /// Takes up what was written, by build, for its missing vectors; live edits first.
    fn follow(&mut self, prepared: Vec<Prepared>, written: &Locked) -> Result<()> {
        let mut groups: BTreeMap<(i32, i64), Group> = BTreeMap::new();
        let (mut edited, mut busy) = (Vec::new(), BTreeMap::<Duration, Vec<Job>>::new());
        for document in prepared {
            if !written.current.contains(&document.document_id) {
                match written.busy.contains(&document.document_id) {
                    true => busy.entry(self.busy_pause(&document.job)).or_default().push(document.job),
                    false => edited.push(document.job),
                }
                continue;
            }
            self.found_busy.remove(&document.job.job_no);
            let priority = document.job.priority;
            for (target, id) in self.flights.add(document) {
                let key = (priority, target.build.build_no);
                groups.entry(key).or_insert_with(|| Group::new(target)).documents.push(id);
            }
        }
        for ((priority, _), mut group) in groups {
            group.holders = self.flights.hold(group.documents.iter().copied());
            match priority {
                jobs::LIVE => self.flights.groups.push_front(group),
                _ => self.flights.groups.push_back(group),
            }
        }
        outcome::give_back(&edited, Duration::ZERO)?;
        busy.iter().try_for_each(|(pause, jobs)| outcome::give_back(jobs, *pause))
    }

    /// The pause before a document is cut once more that an open transaction has: doubled each time.
    fn busy_pause(&mut self, job: &Job) -> Duration {
        if self.found_busy.len() > FOUND_BUSY {
            self.found_busy.clear();
        }
        let times = self.found_busy.entry(job.job_no).or_insert(0);
        *times += 1;
        BUSY.saturating_mul(1 << (*times - 1).min(5))
    }
}

/// Reads documents in order until they hold `bytes`; with the number of jobs not reached.
fn read_some(jobs: &[Job], bytes: usize) -> Result<(Vec<Intake>, usize)> {
    let (mut targets, mut intakes, mut held) = (Targets::default(), Vec::new(), 0);
    for (i, job) in jobs.iter().enumerate() {
        if held >= bytes {
            return Ok((intakes, jobs.len() - i));
        }
        match document::read(job, &mut targets)? {
            // A large one is alone in its group: should it be the end of this worker, it is known which it was.
            Some(intake) if !intakes.is_empty() && held + intake.size() > bytes => {
                return Ok((intakes, jobs.len() - i));
            }
            Some(intake) => {
                held += intake.size();
                intakes.push(intake);
            }
            // Edited since the claim, or deleted (then there is no row to release).
            None => hold_up(jobs::release(std::slice::from_ref(job), Duration::ZERO, None, false)?),
        }
    }
    Ok((intakes, 0))
}
