//! The worker's loop: takes jobs in, keeps the gateway busy, writes what comes back, leaves when idle.

use super::document::{self, Intake, Prepared, Targets};
use super::flights::{Flight, Flights, Group, Open};
use super::offload;
use crate::catalog::builds as build_cases;
use crate::error::{Error, Result};
use crate::gateway::client::{self, Connection};
use crate::gateway::protocol::{Request, Response, Urgency};
use crate::ingest::batch::Batcher;
use crate::model::Kind;
use crate::pg::pidfile::PidFile;
use crate::pg::{background, report, setting, txn, wait, wake};
use crate::settings;
use crate::store::jobs::{self, Job};
use crate::store::{builds, documents, runs, server, vectors};
use pgrx::pg_sys;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

/// Documents under way at most, and of one knowledge base per claim.
const OPEN_DOCUMENTS: usize = 64;
const SHARE: i64 = 16;
/// A group of documents is prepared together up to this many bytes.
const GROUP_BYTES: usize = 2 * 1024 * 1024;
const GROUP_DOCUMENTS: usize = 32;
/// Batches at the gateway at most: one being computed, the others on their way.
const FLIGHTS: usize = 3;
/// Tokens of one batch for a local model at most, so that a live edit is not stuck behind a long one.
const BATCH_TOKENS: usize = 8192;
/// The gateway is given up on after this long without an answer.
const FLIGHT_TIMEOUT: Duration = Duration::from_secs(300);
const GATEWAY_START: Duration = Duration::from_secs(10);
/// Pauses after failures: of the gateway, and of a document (doubled with each attempt, up to the last).
const GATEWAY_PAUSE: Duration = Duration::from_secs(1);
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
/// How often it is looked whether the extension is still there and nobody waits for the database.
const CHECK_EVERY: Duration = Duration::from_millis(200);

pub fn main(database: pg_sys::Oid) {
    background::start();
    background::connect(database);
    let name = wake::worker_name(database);
    if report::in_recovery() || background::in_binary_upgrade() {
        background::exit(0);
    }
    let Ok(Some(pidfile)) = PidFile::acquire(&name) else { background::exit(0) };
    setting::set_for_process(c"search_path", c"pg_catalog, pg_temp");
    // A commit that a crash of the whole server loses is work done again, never work lost: a job is
    // deleted by the very commit that finishes it.
    setting::set_for_process(c"synchronous_commit", c"off");
    let mut runner = Runner::new();
    let mut pidfile = Some(pidfile);
    loop {
        runner.work();
        // Off the list first, then one more look: a commit in between either finds the list without
        // us and starts another, or is seen by this look.
        drop(pidfile.take());
        match txn::in_txn(|| Ok(server::is_installed()? && !background::database_is_wanted() && jobs::any()?))
        {
            Ok(true) => match PidFile::acquire(&name) {
                Ok(Some(file)) => pidfile = Some(file),
                _ => background::exit(0),
            },
            _ => background::exit(0),
        }
    }
}

struct Runner {
    connection: Option<Connection>,
    flights: Flights,
    claimed: VecDeque<Job>,
    last_kb_no: i64,
    checked: Instant,
    renewed: Instant,
    /// When something last moved; None before anything has, so that a visit for nothing ends at once.
    busy: Option<Instant>,
    /// Vectors were written since indexes were looked at.
    index_due: bool,
}

impl Runner {
    fn new() -> Runner {
        let now = Instant::now();
        Runner {
            connection: None,
            flights: Flights::default(),
            claimed: VecDeque::new(),
            last_kb_no: 0,
            checked: now,
            renewed: now,
            busy: None,
            index_due: true,
        }
    }

    /// Works until there is nothing to do for a while, the database is wanted, or the extension is gone.
    fn work(&mut self) {
        if !matches!(txn::in_txn(server::is_installed), Ok(true)) {
            return;
        }
        if let Err(error) = txn::in_txn(|| jobs::release_all(Duration::ZERO, None, false)) {
            report::log(&format!("worker cannot release leases: {error}"));
        }
        if let Err(error) = txn::in_txn(build_cases::look_after_tables) {
            report::log(&format!("worker cannot look after vector tables: {error}"));
        }
        loop {
            report::check_interrupts();
            background::reload_settings();
            if self.checked.elapsed() > CHECK_EVERY {
                self.checked = Instant::now();
                if !matches!(
                    txn::in_txn(|| Ok(server::is_installed()? && !background::database_is_wanted())),
                    Ok(true)
                ) {
                    return;
                }
            }
            match self.step() {
                Ok(true) => self.busy = Some(Instant::now()),
                Ok(false) => {
                    let idle_timeout = settings::worker_idle_timeout();
                    let waited = self.busy.is_none_or(|busy| busy.elapsed() > idle_timeout);
                    if self.is_idle() && self.housekeep() && waited {
                        return;
                    }
                    self.pause();
                }
                Err(error) => {
                    report::log(&format!("worker: {error}"));
                    self.start_over(&error);
                }
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.flights.is_idle() && self.claimed.is_empty()
    }

    fn pause(&self) {
        match &self.connection {
            Some(connection) if !self.flights.sent.is_empty() => connection.wait(CHECK_EVERY),
            _ => wait::latch(CHECK_EVERY),
        };
    }

    /// One round; whether anything moved.
    fn step(&mut self) -> Result<bool> {
        let received = self.receive()?;
        let taken = self.take_in()?;
        let sent = self.send()?;
        self.renew_leases()?;
        Ok(received || taken || sent)
    }

    /// The gateway or the database failed under several documents: all that was under way is given back,
    /// and what had been done of it is found done next time. A fault of the gateway costs no attempt.
    fn start_over(&mut self, error: &Error) {
        self.connection = None;
        self.flights = Flights::default();
        self.claimed.clear();
        let count = !matches!(error, Error::Gateway { .. });
        let text = error.to_string();
        let exhausted = txn::in_txn(|| {
            jobs::release_all(GATEWAY_PAUSE, Some(&text), count)?;
            if count { jobs::exhausted(settings::max_attempts()) } else { Ok(Vec::new()) }
        })
        .and_then(|jobs| jobs.iter().try_for_each(|job| fail(job, error)));
        if let Err(error) = exhausted {
            report::log(&format!("worker cannot give jobs back: {error}"));
        }
        wait::latch(GATEWAY_PAUSE);
    }

    /// Claims jobs, and reads, prepares and writes one group of documents.
    fn take_in(&mut self) -> Result<bool> {
        let room = OPEN_DOCUMENTS.saturating_sub(self.flights.open.len() + self.claimed.len());
        if self.claimed.is_empty() && room >= SHARE as usize {
            let lease = settings::lease_duration();
            let last = self.last_kb_no;
            let jobs = txn::in_txn(|| jobs::claim(last, SHARE, room as i64, lease))?;
            if let Some(job) = jobs.last() {
                self.last_kb_no = job.kb_no;
            }
            self.claimed.extend(jobs);
        }
        if self.claimed.is_empty() {
            return Ok(false);
        }
        let intakes = self.read_group()?;
        let model_dir = settings::model_dir();
        let results: Vec<_> = offload::run(move || {
            intakes.into_iter().map(|intake| document::prepare(intake, &model_dir)).collect()
        })?;
        let mut prepared = Vec::new();
        for result in results {
            match result {
                Ok(document) => prepared.push(document),
                Err((job, error)) => fail(&job, &error)?,
            }
        }
        self.write_group(prepared)?;
        Ok(true)
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
    fn write_group(&mut self, prepared: Vec<Prepared>) -> Result<()> {
        if prepared.is_empty() {
            return Ok(());
        }
        match txn::in_txn(|| document::write(&prepared)) {
            Ok(written) => self.follow(prepared, &written),
            Err(_) if prepared.len() > 1 => {
                for document in prepared {
                    self.write_group(vec![document])?;
                }
                Ok(())
            }
            Err(error) => prepared.first().map_or(Ok(()), |document| fail(&document.job, &error)),
        }
    }

    /// Takes up what was written, by build, for its missing vectors.
    fn follow(&mut self, prepared: Vec<Prepared>, written: &HashSet<i64>) -> Result<()> {
        let mut groups: BTreeMap<i64, Group> = BTreeMap::new();
        let mut edited = Vec::new();
        for document in prepared {
            let id = document.document_id;
            if !written.contains(&id) {
                edited.push(document.job);
                continue;
            }
            let in_next = document.targets.iter().any(|(target, _)| target.0.state == "next");
            self.flights.add(id, document.job, document.settings, document.is_new, in_next);
            for (target, _) in document.targets {
                let group = groups.entry(target.0.build_no).or_insert_with(|| Group {
                    target,
                    documents: Vec::new(),
                    after: (0, -1),
                });
                group.documents.push(id);
            }
        }
        for group in groups.into_values() {
            self.flights.hold(group.documents.iter().copied());
            self.flights.groups.push_back(group);
        }
        if edited.is_empty() {
            return Ok(());
        }
        txn::in_txn(|| jobs::release(&edited, Duration::ZERO, None, false))
    }

    /// Fills the gateway with batches.
    fn send(&mut self) -> Result<bool> {
        let mut sent = false;
        while self.flights.sent.len() < FLIGHTS {
            if let Some(flight) = self.flights.halved.pop() {
                self.dispatch(flight)?;
                sent = true;
                continue;
            }
            let Some(mut group) = self.flights.groups.pop_front() else { break };
            sent = true;
            let (build, embedder) = (&group.target.0, &group.target.1);
            let limit = embedder.config.batch_size;
            let mut slice = txn::in_txn(|| {
                vectors::missing(&build.table, build.build_no, &group.documents, group.after, limit as i64)
            })?;
            let mut exhausted = slice.len() < limit;
            if embedder.provider == "local" {
                let mut batcher = Batcher::new(limit, BATCH_TOKENS);
                let mut first = None;
                let total = slice.len();
                for chunk in slice {
                    let tokens = chunk.token_count.max(0) as usize;
                    first = batcher.push(chunk, tokens);
                    if first.is_some() {
                        break;
                    }
                }
                slice = first.or_else(|| batcher.flush()).unwrap_or_default();
                exhausted &= slice.len() == total;
            }
            if let Some(last) = slice.last() {
                group.after = (last.document_id, last.ordinal);
                let flight = Flight::new(group.target.clone(), slice);
                self.flights.hold(flight.documents());
                self.dispatch(flight)?;
            }
            if exhausted {
                let done = self.flights.let_go(group.documents);
                txn::in_txn(|| finish(&done))?;
            } else {
                self.flights.groups.push_back(group);
            }
        }
        Ok(sent)
    }

    fn dispatch(&mut self, mut flight: Flight) -> Result<()> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(Connection::open(GATEWAY_START)?),
        };
        let id = connection.send(&Request::Embed {
            embedder: flight.target.1.clone(),
            kind: Kind::Document,
            urgency: Urgency::Ingest,
            texts: flight.texts.clone(),
        })?;
        flight.sent = Instant::now();
        self.flights.sent.insert(id, flight);
        Ok(())
    }

    /// Writes the vectors that have come, and finishes documents that have all of theirs.
    fn receive(&mut self) -> Result<bool> {
        let Some(connection) = &mut self.connection else { return Ok(false) };
        let mut arrived = Vec::new();
        while let Some((id, response)) = connection.receive()? {
            if let Some(flight) = self.flights.sent.remove(&id) {
                arrived.push((flight, response));
            }
        }
        if arrived.is_empty() {
            return match self.flights.sent.values().any(|f| f.sent.elapsed() > FLIGHT_TIMEOUT) {
                true => Err(Error::Gateway { problem: "does not answer".into() }),
                false => Ok(false),
            };
        }
        for (flight, response) in arrived {
            let (embedder, count) = (&flight.target.1, flight.texts.len());
            let answer = match response {
                Response::Vectors(vectors) => client::check(vectors, embedder, count),
                Response::Error(fault) => Err(fault.into()),
                other => Err(Error::Internal(format!("unexpected answer of the gateway: {other:?}"))),
            };
            match answer {
                Ok(vectors) => self.store(flight, &vectors.numbers())?,
                Err(Error::InputTooLong { .. } | Error::Embedding { .. }) if count > 1 => self.halve(flight),
                Err(error) => self.fail_flight(&flight, &error)?,
            }
        }
        Ok(true)
    }

    fn store(&mut self, flight: Flight, numbers: &[f32]) -> Result<()> {
        let (build, embedder) = (&flight.target.0, &flight.target.1);
        let numbers = flight.spread(numbers, embedder.dimension);
        let ids: Vec<uuid::Uuid> = flight.chunks.iter().map(|(id, ..)| *id).collect();
        let done = self.flights.let_go(flight.documents());
        let result = txn::in_txn(|| {
            // Documents before chunks: the one order of locks.
            documents::lock_current(
                &done.iter().map(|(id, open)| (*id, open.job.generation)).collect::<Vec<_>>(),
            )?;
            vectors::insert(&build.table, build.build_no, build.fingerprint, &ids, &numbers)?;
            finish(&done)
        });
        self.index_due = true;
        if let Err(error) = result {
            for (_, open) in done {
                fail(&open.job, &error)?;
            }
            self.fail_flight(&flight, &error)?;
        }
        Ok(())
    }

    fn halve(&mut self, flight: Flight) {
        let documents = flight.documents();
        for half in flight.halves() {
            self.flights.hold(half.documents());
            self.flights.halved.push(half);
        }
        // Each half holds its documents, so none is done by this.
        self.flights.let_go(documents);
    }

    fn fail_flight(&mut self, flight: &Flight, error: &Error) -> Result<()> {
        let is_live = flight.target.0.state == "live";
        let mut spared = Vec::new();
        for document in flight.documents() {
            match self.flights.open.get(&document) {
                // What yesterday's settings cannot take must not keep the next build from being made.
                Some(open) if is_live && open.in_next && !error.is_transient() => spared.push(document),
                Some(_) => {
                    if let Some(open) = self.flights.open.remove(&document) {
                        fail(&open.job, error)?;
                    }
                }
                None => {}
            }
        }
        let done = self.flights.let_go(spared);
        txn::in_txn(|| finish(&done))
    }

    fn renew_leases(&mut self) -> Result<()> {
        let lease = settings::lease_duration();
        if self.renewed.elapsed() < lease / 3 {
            return Ok(());
        }
        self.renewed = Instant::now();
        let mut jobs = self.flights.jobs();
        jobs.extend(self.claimed.iter().cloned());
        txn::in_txn(|| jobs::extend(&jobs, lease))
    }

    /// What is done when the queue is empty; true when nothing remains to be waited for.
    fn housekeep(&mut self) -> bool {
        let result = txn::in_txn(|| {
            runs::finish_idle()?;
            for build in builds::finished_next()? {
                build_cases::switch(&build)?;
            }
            Ok(())
        })
        .and_then(|()| {
            for build in txn::in_txn(builds::old)? {
                // A query may be reading it: not now, then.
                let swept = txn::in_txn(|| {
                    setting::with(&[(c"lock_timeout", c"500ms")], || build_cases::sweep(&build))
                });
                if let Err(error) = swept {
                    report::log(&format!("old build {} stays for now: {error}", build.build_no));
                }
            }
            if self.index_due {
                let wanted = txn::in_txn(vectors::without_index)?.iter().any(|s| s.large_enough);
                self.index_due = wanted && !wake::start_indexer();
            }
            txn::in_txn(|| Ok(!jobs::any()? && !runs::any_housekeeping()?))
        });
        match result {
            Ok(nothing_left) => nothing_left,
            Err(error) => {
                report::log(&format!("worker housekeeping: {error}"));
                true
            }
        }
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
            Some(intake) => {
                held += intake.size();
                intakes.push(intake);
            }
            // Edited since the claim, or deleted (then there is no row to release).
            None => jobs::release(std::slice::from_ref(job), Duration::ZERO, None, false)?,
        }
    }
    Ok((intakes, 0))
}

/// Ends the jobs of documents that have all their vectors, unless they were edited meanwhile.
fn finish(done: &[(i64, Open)]) -> Result<()> {
    if done.is_empty() {
        return Ok(());
    }
    let keys: Vec<(i64, i64)> = done.iter().map(|(id, open)| (*id, open.job.generation)).collect();
    documents::lock_current(&keys)?;
    let jobs: Vec<Job> = done.iter().map(|(_, open)| open.job.clone()).collect();
    let finished: HashSet<(i64, String)> = jobs::finish(&jobs)?.into_iter().collect();
    let mut by_settings: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    let mut by_run: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    for (id, open) in done {
        if !finished.contains(&(open.job.kb_no, open.job.external_id.clone())) {
            continue;
        }
        by_settings.entry(&open.settings).or_default().push(*id);
        if let Some(run_no) = open.job.run_no {
            let counts = by_run.entry(run_no).or_default();
            if open.is_new { counts.0 += 1 } else { counts.1 += 1 }
        }
    }
    for (settings, ids) in by_settings {
        documents::set_ready(&ids, settings)?;
    }
    for (run_no, (added, updated)) in by_run {
        runs::count(run_no, added, updated, 0)?;
    }
    Ok(())
}

/// Records a failure in a transaction of its own: to be tried again, or, if trying cannot help or was
/// done often enough, for kb.failures.
fn fail(job: &Job, error: &Error) -> Result<()> {
    let hint = error.hint().map(|h| format!(" ({h})")).unwrap_or_default();
    let text = match error.detail() {
        Some(detail) => format!("{error}: {detail}{hint}"),
        None => format!("{error}{hint}"),
    };
    txn::in_txn(|| {
        if error.is_transient() && job.attempts < settings::max_attempts() {
            let delay = RETRY.0.saturating_mul(1 << (job.attempts - 1).clamp(0, 16)).min(RETRY.1);
            return jobs::release(std::slice::from_ref(job), delay, Some(&text), true);
        }
        documents::lock_by_key(job.kb_no, &job.external_id)?;
        if !jobs::finish(std::slice::from_ref(job))?.is_empty() {
            documents::set_failed(job.kb_no, &job.external_id, &text, error.sqlstate(), job.attempts)?;
            if let Some(run_no) = job.run_no {
                runs::count(run_no, 0, 0, 1)?;
            }
        }
        Ok(())
    })
}
