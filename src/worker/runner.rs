//! The worker's loop: takes jobs in, keeps the gateway busy, writes what comes back, leaves when idle.
//!
//! The worker leaves after `kb.worker_idle_timeout`, when the extension is gone, or when its database is
//! wanted: DROP DATABASE, RENAME and CREATE DATABASE … TEMPLATE wait for its sessions to leave
//! (`background::database_is_wanted`). In the last two cases it ends the indexer, too. Nobody restarts it;
//! the next commit that has work, or the launcher, starts another worker.
//!
//! Where process slots are short (`wake::slots_are_short`), the worker leaves after its turn: it takes up and
//! sends nothing more, writes what is being prepared, waits for what is at the gateway, and gives its leases
//! back.
//!
//! **Invariant:** a worker that leaves removes its pid file first, and then looks for jobs once more.

use super::context::Worker;
use crate::jobs::queue;
use crate::pg::pidfile::{self, PidFile};
use crate::pg::{background, latch, niceness, pinned_settings, report, setting, txn, wake};
use crate::settings;
use crate::sql::server_catalogs;
use crate::vectors;
use kb_types::error::{Error, Result};
use pgrx::pg_sys;
use std::time::{Duration, Instant};

/// Where process slots are short, a worker works this long before it makes room for another database's.
const TURN: Duration = Duration::from_secs(5);
/// After its turn the worker waits at most this long for batches at the gateway. Those that still wait for a
/// rate limit cost nothing.
const LEAVE_WITHIN: Duration = Duration::from_secs(30);
/// How often the worker checks that the extension is still there and nobody waits for the database.
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
        // Another worker runs already.
        Ok(None) => {
            wake::has_started(&name);
            background::exit(0)
        }
        Err(error) => {
            report::log(&format!("worker cannot write its pid file: {error}"));
            background::exit(0)
        }
    };
    pinned_settings::pin_for_process();
    niceness::let_sessions_go_first();
    // Its statements find few rows, by index, in tables of any size; what statistics say of these may be old
    // or missing.
    for name in [c"enable_seqscan", c"enable_bitmapscan", c"enable_hashjoin", c"enable_mergejoin"] {
        setting::set_for_process(name, c"off");
    }
    // In a deadlock the worker gives way.
    setting::set_for_process(c"deadlock_timeout", c"50ms");
    // A lock on the tables of one knowledge base must not stop the others.
    setting::set_for_process(c"lock_timeout", c"200ms");
    // A commit that a crash of the whole server loses is work done again, never work lost: a job is
    // deleted by the very commit that finishes it.
    setting::set_for_process(c"synchronous_commit", c"off");
    let mut worker = Worker::new(file.died_at.clone());
    pidfile::hold(file);
    wake::has_started(&name);
    loop {
        let left = worker.work();
        worker.outcomes.report_failed(true);
        if left == Left::Early {
            background::exit(0);
        }
        // The pid file first, then one more look for jobs: a commit in between either finds no file and
        // starts another worker, or is seen by this look.
        pidfile::remove_held();
        let may_stay = may_stay();
        if may_stay {
            worker.end_upkeeps();
        }
        match txn::in_txn(|| Ok(may_stay && worker.has_work()?)) {
            Ok(true) => match PidFile::acquire(&name) {
                Ok(Some(file)) => pidfile::hold(file),
                _ => background::exit(0),
            },
            _ => background::exit(0),
        }
    }
}

/// Why a worker stopped working.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// Nothing to do, or nothing that may be done.
    Done,
    /// Other databases wait for its process slot, or a restore has not ended. The launcher or a later commit
    /// comes back to it.
    Early,
}

/// What pg_stat_activity says of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shown {
    documents: usize,
    at_gateway: usize,
}

/// When the worker last did what, on which depends when it leaves.
pub struct Clock {
    shown: Option<Shown>,
    begun: Instant,
    checked: Instant,
    /// When something last moved; None before anything has, so that a worker with nothing to do leaves at
    /// once.
    moved: Option<Instant>,
    /// When its turn ended: it waits for what is at the gateway, and sends nothing more.
    leaving: Option<Instant>,
}

impl Clock {
    pub fn new() -> Clock {
        Clock { shown: None, begun: Instant::now(), checked: Instant::now(), moved: None, leaving: None }
    }
}

impl Worker {
    /// Works until there is nothing to do for a while, the database is wanted, the extension is gone, or
    /// others want the process slot.
    fn work(&mut self) -> Left {
        if !matches!(txn::in_txn(server_catalogs::is_installed), Ok(true)) {
            return Left::Done;
        }
        // What it changed now would contradict the rows that are restored next.
        if matches!(txn::in_txn(vectors::is_being_restored), Ok(true)) {
            return Left::Early;
        }
        self.begin_upkeeps();
        loop {
            report::check_interrupts();
            background::reload_settings();
            self.outcomes.report_failed(false);
            if self.clock.checked.elapsed() > CHECK_EVERY {
                self.clock.checked = Instant::now();
                if !may_stay() {
                    return Left::Done;
                }
                let is_over = self.clock.begun.elapsed() > TURN && wake::slots_are_short();
                self.clock.leaving = is_over.then(|| self.clock.leaving.unwrap_or_else(Instant::now));
            }
            if self.backoff.is_waiting(Instant::now()) {
                // The wait is short enough to notice DROP DATABASE.
                latch::wait(CHECK_EVERY);
                continue;
            }
            if self.backoff.is_unfinished() && self.clock.leaving.is_some() {
                // The next worker takes over.
                return Left::Early;
            }
            if let Some(fault) = self.backoff.take_unfinished() {
                self.give_back_all(fault);
                continue;
            }
            if !self.leases.is_taken_over() {
                if let Err(error) = self.take_over_leases() {
                    report::log(&format!("worker cannot release leases: {error}"));
                    let pause = self.backoff.count_fault();
                    self.backoff.wait(pause, Instant::now());
                }
                continue;
            }
            let moved = self.step();
            self.show();
            match moved {
                Ok(_) if self.clock.leaving.is_some_and(|since| self.may_leave(since)) => {
                    if let Err(error) = txn::in_txn(|| queue::release_all(Duration::ZERO, None, false)) {
                        report::log(&format!("worker cannot return jobs to the queue: {error}"));
                    }
                    return Left::Early;
                }
                Ok(true) => {
                    self.clock.moved = Some(Instant::now());
                    self.backoff.reset();
                    self.keep_up_now_and_then();
                }
                Ok(false) if !self.is_idle() => {
                    self.keep_up_now_and_then();
                    self.pause();
                }
                Ok(false) => {
                    let idle_timeout = settings::worker_idle_timeout();
                    let has_waited = self.clock.moved.is_none_or(|moved| moved.elapsed() > idle_timeout);
                    // It also stays while an index is being built, because it has to end the build for a DROP
                    // DATABASE.
                    let nothing_left = self.keep_up();
                    if self.has_kept_up() {
                        self.clock.moved = Some(Instant::now());
                    } else if nothing_left && has_waited && !wake::indexer_runs() {
                        return Left::Done;
                    }
                    self.pause();
                }
                // Only this round is lost.
                Err(error) if error.is_conflict() => {
                    self.log.write("worker waits for a lock of another session", &error);
                    self.pause();
                }
                Err(error) => {
                    report::log(&format!("worker: {error}"));
                    self.start_over(error);
                }
            }
        }
    }

    /// One round; whether anything moved.
    fn step(&mut self) -> Result<bool> {
        let received = match self.save_again()? {
            false => self.receive()?,
            true => true,
        };
        // Nothing more is sent while vectors that are paid for cannot be written.
        if self.unsaved.is_stuck() {
            // On a full disk this fails, too. No other worker takes the jobs of one that runs.
            if let Err(error) = self.renew_leases() {
                report::log(&format!("worker cannot renew leases: {error}"));
            }
            return Ok(received);
        }
        // This comes first, because a worker that slept longer than a lease must not claim its own jobs.
        self.renew_leases()?;
        let (works, open) = (&self.works, &self.open);
        self.outcomes.release_now_and_then(|| open.jobs().chain(works.jobs()).collect());
        let may_begin = self.clock.leaving.is_none();
        let taken = self.take_in(may_begin)?;
        let sent = may_begin && self.send()?;
        Ok(received || taken || sent)
    }

    /// The gateway or the database failed under several documents: all that was under way is given back.
    /// Vectors that could not be written are kept.
    fn start_over(&mut self, fault: Error) {
        self.link.close();
        self.open.clear();
        self.queue.clear();
        self.works.clear();
        self.give_back_all(fault);
    }

    /// Shows in pg_stat_activity what is under way, where that has changed.
    fn show(&mut self) {
        let now = Shown {
            documents: self.open.len() + self.works.jobs().count(),
            at_gateway: self.link.in_flight().len(),
        };
        if self.clock.shown.replace(now) == Some(now) {
            return;
        }
        match now {
            Shown { documents: 0, at_gateway: 0 } => txn::report_idle("waiting for documents"),
            Shown { documents, at_gateway } => txn::report_activity(Some(&format!(
                "processing documents: {documents} under way, {at_gateway} batches at the gateway"
            ))),
        }
    }

    fn is_idle(&self) -> bool {
        let is_sending = !self.open.is_empty() || !self.queue.is_empty() || !self.link.in_flight().is_empty();
        self.works.is_idle() && !is_sending && self.unsaved.is_empty()
    }

    fn may_leave(&mut self, since: Instant) -> bool {
        let is_late = since.elapsed() > LEAVE_WITHIN;
        if !is_late && self.upkeeps.all().iter().any(|upkeep| upkeep.is_under_way()) {
            return false;
        }
        if !self.unsaved.is_empty() {
            return is_late;
        }
        // What is being prepared is written first: otherwise a document that takes longer than a turn would
        // never be written.
        !self.works.is_preparing() && (self.link.in_flight().is_empty() || is_late)
    }

    fn pause(&mut self) {
        // The helper thread wakes this process only once, so the worker does not wait while a group is
        // prepared, unless nothing is taken in because vectors cannot be saved.
        if self.works.is_prepared() && !self.unsaved.is_stuck() {
            return;
        }
        if !self.link.wait(CHECK_EVERY) {
            latch::wait(CHECK_EVERY);
        }
    }
}

/// False when the extension is gone, or somebody waits for the sessions of this database to leave.
fn may_stay() -> bool {
    let found = txn::in_txn(|| Ok((server_catalogs::is_installed()?, background::database_is_wanted())));
    match found {
        Ok((true, false)) => true,
        Ok((_, is_wanted)) => {
            if is_wanted {
                wake::stop_indexer();
            }
            false
        }
        Err(_) => false,
    }
}
