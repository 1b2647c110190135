//! The worker's loop: takes jobs in, keeps the gateway busy, writes what comes back, leaves when idle.

use super::claims::Claims;
use super::flights::{Flight, Flights};
use super::growth::Growth;
use super::outcome::fail;
use crate::catalog::builds as build_cases;
use crate::error::{Error, Result};
use crate::gateway::client::{self, Connection};
use crate::gateway::protocol::{Embedded, QueryUsage};
use crate::model::Embedder;
use crate::pg::pidfile::{self, PidFile};
use crate::pg::{background, report, setting, txn, wait, wake};
use crate::settings;
use crate::store::jobs::{self, Job};
use crate::store::{builds, embedders, runs, server, usage, vectors};
use pgrx::pg_sys;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// Pause after a fault of the gateway or the database: doubled with each in a row, up to the last.
const FAULT_PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// A worker works so long before it makes room for another database's, where process slots are short.
const TURN: Duration = Duration::from_secs(5);
/// What is at the gateway when that has been over for so long is waited for no longer: what waits there behind a rate is not paid for.
const LAST_CALL: Duration = Duration::from_secs(30);
/// How often it is looked whether the extension is still there and nobody waits for the database.
const CHECK_EVERY: Duration = Duration::from_millis(200);
/// How often usage by queries is asked for.
const BOOK_EVERY: Duration = Duration::from_secs(2);

pub fn main(database: pg_sys::Oid) {
    background::start();
    background::connect(database);
    let name = wake::worker_name(database);
    if report::in_recovery() || background::in_binary_upgrade() {
        background::exit(0);
    }
    let Ok(Some(file)) = PidFile::acquire(&name) else { background::exit(0) };
    setting::set_for_process(c"search_path", c"pg_catalog, pg_temp");
    // In a deadlock the one to give way.
    setting::set_for_process(c"deadlock_timeout", c"50ms");
    // A commit that a crash of the whole server loses is work done again, never work lost: a job is
    // deleted by the very commit that finishes it.
    setting::set_for_process(c"synchronous_commit", c"off");
    let mut runner = Runner::new(file.died_at);
    pidfile::hold(file);
    loop {
        if runner.work() == Left::Turn {
            // The launcher comes back to this database when the others have had theirs.
            background::exit(0);
        }
        // Off the list first, then one more look: a commit in between either finds the list without
        // us and starts another, or is seen by this look.
        pidfile::let_go();
        match txn::in_txn(|| Ok(server::is_installed()? && !background::database_is_wanted() && jobs::any()?))
        {
            Ok(true) => match PidFile::acquire(&name) {
                Ok(Some(file)) => pidfile::hold(file),
                _ => background::exit(0),
            },
            _ => background::exit(0),
        }
    }
}

/// Why a worker left off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// Nothing to do, or nothing that may be done.
    Done,
    /// Its turn is over: other databases wait for its process slot.
    Turn,
}

pub(super) struct Runner {
    begun: Instant,
    /// The job over which the worker before this one died.
    died_at: Option<i64>,
    /// Faults of gateway or database in a row.
    faults: u32,
    /// Since when its turn is over: what is at the gateway is waited for, nothing more is sent.
    pub(super) leaving: Option<Instant>,
    pub(super) connection: Option<Connection>,
    pub(super) flights: Flights,
    pub(super) claimed: VecDeque<Job>,
    /// Vectors that the database did not take, and when it is asked again.
    pub(super) unsaved: Vec<(Flight, Embedded)>,
    pub(super) save_at: Instant,
    pub(super) claims: Claims,
    pub(super) growth: Growth,
    checked: Instant,
    renewed: Instant,
    /// When something last moved; None before anything has, so that a visit for nothing ends at once.
    busy: Option<Instant>,
    /// Vectors were written since indexes were looked at.
    pub(super) index_due: bool,
    /// Embedders that are not asked until then, as long as they are as they were, and why.
    pub(super) paused: HashMap<String, (Instant, Embedder, Error)>,
    booked: Option<Instant>,
    /// When the gateway last said something, and whether it has been asked if it lives.
    pub(super) heard: Instant,
    pub(super) asked: bool,
}

impl Runner {
    fn new(died_at: Option<i64>) -> Runner {
        let now = Instant::now();
        Runner {
            begun: now,
            died_at,
            faults: 0,
            leaving: None,
            connection: None,
            flights: Flights::default(),
            claimed: VecDeque::new(),
            unsaved: Vec::new(),
            save_at: now,
            claims: Claims::default(),
            growth: Growth::default(),
            checked: now,
            renewed: now,
            busy: None,
            index_due: true,
            paused: HashMap::new(),
            booked: None,
            heard: now,
            asked: false,
        }
    }

    /// Works until there is nothing to do for a while, the database is wanted, the extension is gone, or others
    /// want the process slot.
    fn work(&mut self) -> Left {
        if !matches!(txn::in_txn(server::is_installed), Ok(true)) {
            return Left::Done;
        }
        if let Err(error) = self.take_over() {
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
                if !self.may_stay() {
                    return Left::Done;
                }
                let over = self.begun.elapsed() > TURN && wake::slots_are_short();
                self.leaving = over.then(|| self.leaving.unwrap_or_else(Instant::now));
            }
            match self.step() {
                Ok(_) if self.leaving.is_some_and(|since| self.may_leave(since)) => {
                    if let Err(error) = txn::in_txn(|| jobs::release_all(Duration::ZERO, None, false)) {
                        report::log(&format!("worker cannot give jobs back: {error}"));
                    }
                    return Left::Turn;
                }
                Ok(true) => {
                    self.busy = Some(Instant::now());
                    self.faults = 0;
                }
                Ok(false) => {
                    let idle_timeout = settings::worker_idle_timeout();
                    let waited = self.busy.is_none_or(|busy| busy.elapsed() > idle_timeout);
                    // While an index is being built, too: somebody has to end that for a DROP DATABASE.
                    if self.is_idle() && self.housekeep() && waited && !wake::indexer_runs() {
                        return Left::Done;
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

    /// Gives back what a dead worker had leased. The document over which it died may have killed it: that one has
    /// had an attempt, and so does not kill workers for ever.
    fn take_over(&mut self) -> Result<()> {
        if let Some(job_no) = self.died_at.take()
            && let Some(job) = txn::in_txn(|| jobs::take_over(job_no))?
        {
            report::log(&format!("the worker before this one died over document \"{}\"", job.external_id));
            fail(&job, &Error::Died { external_id: job.external_id.clone() })?;
        }
        txn::in_txn(|| jobs::release_all(Duration::ZERO, None, false)).map(drop)
    }

    /// False when the extension is gone, or somebody waits for the sessions of this database to leave.
    fn may_stay(&self) -> bool {
        let found = txn::in_txn(|| Ok((server::is_installed()?, background::database_is_wanted())));
        match found {
            Ok((true, false)) => true,
            Ok((_, wanted)) => {
                if wanted {
                    wake::stop_indexer();
                }
                false
            }
            Err(_) => false,
        }
    }

    fn is_idle(&self) -> bool {
        self.flights.is_idle() && self.claimed.is_empty() && self.unsaved.is_empty()
    }

    fn may_leave(&self, since: Instant) -> bool {
        (self.flights.sent.is_empty() && self.unsaved.is_empty()) || since.elapsed() > LAST_CALL
    }

    fn pause(&self) {
        match &self.connection {
            Some(connection) if !self.flights.sent.is_empty() => connection.wait(CHECK_EVERY),
            _ => wait::latch(CHECK_EVERY),
        };
    }

    /// One round; whether anything moved.
    fn step(&mut self) -> Result<bool> {
        let received = self.save_again()? || self.receive()?;
        // Nothing more is bought while what was bought cannot be kept.
        if !self.unsaved.is_empty() {
            self.renew_leases()?;
            return Ok(received);
        }
        let taken = self.take_in()?;
        let sent = self.leaving.is_none() && self.send()?;
        self.renew_leases()?;
        Ok(received || taken || sent)
    }

    /// The gateway or the database failed under several documents: all that was under way is given back,
    /// and what had been done of it is found done next time. What no document can help costs no attempt.
    fn start_over(&mut self, error: &Error) {
        self.connection = None;
        self.asked = false;
        self.flights = Flights::default();
        self.unsaved.clear();
        self.claimed.clear();
        let pause = FAULT_PAUSE.0.saturating_mul(1 << self.faults.min(10)).min(FAULT_PAUSE.1);
        self.faults += 1;
        let count = error.is_of_the_work();
        // Every tenant whose document was under way sees it: not what it was, which is in the log.
        let text = "the worker met a fault and starts over; see the server log";
        let exhausted = txn::in_txn(|| {
            jobs::release_all(pause, Some(text), count)?;
            if count { jobs::exhausted(settings::max_attempts()) } else { Ok(Vec::new()) }
        })
        .and_then(|jobs| jobs.iter().try_for_each(|job| fail(job, error)));
        if let Err(error) = exhausted {
            report::log(&format!("worker cannot give jobs back: {error}"));
        }
        // Long enough not to spin, short enough to notice DROP DATABASE.
        wait::latch(FAULT_PAUSE.0);
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

    /// Queries cannot write: what they spent is fetched from the gateway now and then.
    fn book_query_usage(&mut self) -> Result<()> {
        if self.booked.is_some_and(|at| at.elapsed() < BOOK_EVERY) || !wake::gateway_runs() {
            return Ok(());
        }
        self.booked = Some(Instant::now());
        let used = client::take_usage(settings::gateway_timeout())?;
        txn::in_txn(|| {
            for QueryUsage { embedder, kb_no, usage } in &used {
                let price = embedders::find(embedder)?.and_then(|e| e.config.remote.price_micros);
                usage::add(embedder, *kb_no, usage, price)?;
            }
            Ok(())
        })
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
            self.book_query_usage()?;
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
                wait::latch(FAULT_PAUSE.0);
                false
            }
        }
    }
}
