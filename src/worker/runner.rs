//! The worker's loop: takes jobs in, keeps the gateway busy, writes what comes back, leaves when idle.

use super::claims::Claims;
use super::flights::{Flights, Unsaved};
use super::growth::Growth;
use super::intake::Preparing;
use super::outcome;
use crate::error::{Error, Result};
use crate::gateway::client::Connection;
use crate::gateway::protocol::Access;
use crate::model::Embedder;
use crate::pg::pidfile::{self, PidFile};
use crate::pg::{background, report, setting, txn, wait, wake};
use crate::settings;
use crate::store::jobs::{self, Job};
use crate::store::server;
use pgrx::pg_sys;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// Pause after a fault of the gateway or the database: doubled with each in a row, up to the last.
pub(super) const FAULT_PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// A worker works so long before it makes room for another database's, where process slots are short.
const TURN: Duration = Duration::from_secs(5);
/// What is at the gateway when that has been over for so long is waited for no longer: what waits there behind a rate is not paid for.
const LAST_CALL: Duration = Duration::from_secs(30);
/// After how long what was said in the log is said again, if it still lasts.
const SAY_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// How often it is tried to give back jobs that an open transaction has.
const GIVE_BACK_EVERY: Duration = Duration::from_secs(1);
/// How often it is looked whether the extension is still there and nobody waits for the database.
const CHECK_EVERY: Duration = Duration::from_millis(200);

pub fn main(database: pg_sys::Oid) {
    background::start();
    background::connect(database);
    let name = wake::worker_name(database);
    if report::in_recovery() || background::in_binary_upgrade() {
        background::exit(0);
    }
    let file = match PidFile::acquire(&name) {
        Ok(Some(file)) => file,
        Ok(None) => background::exit(0),
        Err(error) => {
            report::log(&format!("worker cannot write its pid file: {error}"));
            background::exit(0)
        }
    };
    setting::pin_for_process();
    // In a deadlock the one to give way.
    setting::set_for_process(c"deadlock_timeout", c"50ms");
    // One knowledge base whose tables somebody locks must not stop the others.
    setting::set_for_process(c"lock_timeout", c"200ms");
    // A commit that a crash of the whole server loses is work done again, never work lost: a job is
    // deleted by the very commit that finishes it.
    setting::set_for_process(c"synchronous_commit", c"off");
    let mut runner = Runner::new(file.died_at.clone());
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
    /// The jobs over which the worker before this one died; and whether what that one had leased was given back.
    pub(super) died_at: Vec<i64>,
    taken_over: bool,
    /// Faults of gateway or database in a row; nothing is done before `resume_at`.
    pub(super) faults: u32,
    pub(super) resume_at: Instant,
    /// The fault after which jobs could not even be given back.
    pub(super) owed: Option<Error>,
    /// Since when its turn is over: what is at the gateway is waited for, nothing more is sent.
    pub(super) leaving: Option<Instant>,
    pub(super) connection: Option<Connection>,
    pub(super) flights: Flights,
    pub(super) claimed: VecDeque<Job>,
    /// Without jobs: was given up, and its end is waited for.
    pub(super) preparing: Option<Preparing>,
    /// Vectors that the database did not take, and when it is asked again.
    pub(super) unsaved: Vec<Unsaved>,
    pub(super) save_at: Instant,
    pub(super) claims: Claims,
    pub(super) growth: Growth,
    checked: Instant,
    pub(super) renewed: Instant,
    given_back: Instant,
    /// What was said in the log lately, and when: a fault that lasts is met again and again.
    said: HashMap<String, Instant>,
    /// Vector tables were looked after since this worker started.
    pub(super) is_mended: bool,
    /// By job_no, how often a document was found in an open transaction.
    pub(super) found_busy: HashMap<i64, u32>,
    /// When something last moved; None before anything has, so that a visit for nothing ends at once.
    busy: Option<Instant>,
    /// Vectors were written since indexes were looked at.
    pub(super) index_due: bool,
    /// Embedders that are not asked until then, as long as they are as they were, and why; for all tenants, or for the
    /// one that is named.
    pub(super) paused: HashMap<(String, Option<String>), (Instant, Embedder, Error)>,
    pub(super) paused_looked: Instant,
    /// Embedders as they were read in this round of sending, and the right to ask them; of a tenant, where that matters.
    pub(super) asked_anew: HashMap<(String, String), (Embedder, Access)>,
    pub(super) booked: Option<Instant>,
    pub(super) housekept: Instant,
    /// When the gateway last said something, and whether it has been asked if it lives.
    pub(super) heard: Instant,
    pub(super) asked: bool,
}

impl Runner {
    fn new(died_at: Vec<i64>) -> Runner {
        let now = Instant::now();
        Runner {
            begun: now,
            died_at,
            taken_over: false,
            faults: 0,
            resume_at: now,
            owed: None,
            leaving: None,
            connection: None,
            flights: Flights::default(),
            claimed: VecDeque::new(),
            preparing: None,
            unsaved: Vec::new(),
            save_at: now,
            claims: Claims::default(),
            growth: Growth::default(),
            checked: now,
            renewed: now,
            given_back: now,
            said: HashMap::new(),
            is_mended: false,
            found_busy: HashMap::new(),
            busy: None,
            index_due: true,
            paused: HashMap::new(),
            paused_looked: now,
            asked_anew: HashMap::new(),
            booked: None,
            housekept: now,
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
        self.look_after_tables();
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
            if Instant::now() < self.resume_at {
                // In steps short enough to notice DROP DATABASE.
                wait::latch(CHECK_EVERY);
                continue;
            }
            if self.owed.is_some() && self.leaving.is_some() {
                // The next worker takes over.
                return Left::Turn;
            }
            if let Some(error) = self.owed.take() {
                self.give_back(error);
                continue;
            }
            if !self.taken_over {
                match self.take_over() {
                    Ok(()) => self.taken_over = true,
                    Err(error) => {
                        report::log(&format!("worker cannot release leases: {error}"));
                        self.resume_at = Instant::now() + self.next_pause();
                    }
                }
                continue;
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
                    self.housekeep_now_and_then();
                }
                Ok(false) if !self.is_idle() => {
                    self.housekeep_now_and_then();
                    self.pause();
                }
                Ok(false) => {
                    let idle_timeout = settings::worker_idle_timeout();
                    let waited = self.busy.is_none_or(|busy| busy.elapsed() > idle_timeout);
                    // While an index is being built, too: somebody has to end that for a DROP DATABASE.
                    if self.housekeep() && waited && !wake::indexer_runs() {
                        return Left::Done;
                    }
                    self.pause();
                }
                // Nothing is lost but this round.
                Err(error) if error.is_lock() => {
                    self.say("worker waits for somebody's lock", &error);
                    self.pause();
                }
                Err(error) => {
                    report::log(&format!("worker: {error}"));
                    self.start_over(error);
                }
            }
        }
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
        let at_work = !self.claimed.is_empty() || self.preparing.is_some();
        self.flights.is_idle() && !at_work && self.unsaved.is_empty()
    }

    fn may_leave(&self, since: Instant) -> bool {
        let is_late = since.elapsed() > LAST_CALL;
        if !self.unsaved.is_empty() {
            return is_late;
        }
        // What is being prepared is written first, or a document that takes longer than a turn never would be.
        self.preparing.is_none() && (self.flights.sent.is_empty() || is_late)
    }

    fn pause(&mut self) {
        // It wakes this process only once. While vectors cannot be saved nothing is taken in.
        let is_prepared = self.preparing.as_mut().is_some_and(|preparing| preparing.results.is_done());
        if is_prepared && !self.is_stuck() {
            return;
        }
        match &self.connection {
            Some(connection) if !self.flights.sent.is_empty() => connection.wait(CHECK_EVERY),
            _ => wait::latch(CHECK_EVERY),
        };
    }

    /// Says in the log what went wrong; the same thing now and then only, and of locks any one.
    pub(super) fn say(&mut self, what: &str, error: &Error) {
        let line = format!("{what}: {error}");
        let topic = if error.is_lock() { "a lock".to_string() } else { line.clone() };
        self.said.retain(|_, at| at.elapsed() < SAY_AGAIN_AFTER);
        if let Entry::Vacant(place) = self.said.entry(topic) {
            place.insert(Instant::now());
            report::log(&line);
        }
    }

    /// Vectors wait that no table takes.
    fn is_stuck(&self) -> bool {
        self.unsaved.iter().any(|unsaved| !unsaved.is_of_table)
    }

    /// One round; whether anything moved.
    fn step(&mut self) -> Result<bool> {
        let received = self.save_again()? || self.receive()?;
        // Nothing more is bought while what was bought cannot be kept.
        if self.is_stuck() {
            // On a full disk not even this can be written; nobody else takes the jobs of a worker that runs.
            if let Err(error) = self.renew_leases() {
                report::log(&format!("worker cannot renew leases: {error}"));
            }
            return Ok(received);
        }
        // First: a worker that slept longer than a lease must not claim what it has.
        self.renew_leases()?;
        if self.given_back.elapsed() > GIVE_BACK_EVERY {
            self.given_back = Instant::now();
            outcome::give_back_held_up(&self.jobs_at_work())?;
        }
        let taken = self.take_in()?;
        let sent = self.leaving.is_none() && self.send()?;
        Ok(received || taken || sent)
    }
}
