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

use super::backoff::Backoff;
use super::log::Log;
use crate::jobs::queue;
use crate::jobs::queue::Job;
use crate::pg::pidfile::{self, PidFile};
use crate::pg::{background, latch, niceness, pinned_settings, report, setting, txn, wake};
use crate::settings;
use crate::sql::server_catalogs;
use crate::tables::changes;
use crate::vectors;
use crate::worker::embed::gateway_link::GatewayLink;
use crate::worker::embed::pauses::Pauses;
use crate::worker::embed::send_queue::SendQueue;
use crate::worker::embed::{receive, send};
use crate::worker::finish::leases;
use crate::worker::finish::leases::Leases;
use crate::worker::finish::open_documents::OpenDocuments;
use crate::worker::finish::unsaved::UnsavedVectors;
use crate::worker::intake::documents::Intake;
use crate::worker::upkeep::housekeeping::Housekeeping;
use crate::worker::upkeep::indexes::Indexes;
use kb_types::error::{Error, Result};
use pgrx::pg_sys;
use std::time::{Duration, Instant};

/// Where process slots are short, a worker works this long before it makes room for another database's.
const TURN: Duration = Duration::from_secs(5);
/// After its turn the worker waits at most this long for what is at the gateway. What waits there for a rate limit is
/// not paid for.
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
        // Another one runs: that is as good.
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
    // Its statements find few rows, by index, in tables of any size; what statistics say of these may be old or missing.
    for name in [c"enable_seqscan", c"enable_bitmapscan", c"enable_hashjoin", c"enable_mergejoin"] {
        setting::set_for_process(name, c"off");
    }
    // In a deadlock the worker gives way.
    setting::set_for_process(c"deadlock_timeout", c"50ms");
    // One knowledge base whose tables somebody locks must not stop the others.
    setting::set_for_process(c"lock_timeout", c"200ms");
    // A commit that a crash of the whole server loses is work done again, never work lost: a job is
    // deleted by the very commit that finishes it.
    setting::set_for_process(c"synchronous_commit", c"off");
    let mut runner = Runner::new(file.died_at.clone());
    pidfile::hold(file);
    wake::has_started(&name);
    loop {
        let left = runner.work();
        runner.open.outcomes().report_failed(true);
        if left == Left::Early {
            background::exit(0);
        }
        // The pid file first, then one more look for jobs: a commit in between either finds no file and starts
        // another worker, or is seen by this look.
        pidfile::let_go();
        let may_stay = may_stay();
        if may_stay {
            runner.housekeeping.write_query_log(&mut runner.log);
        }
        let has_work = || -> Result<bool> {
            Ok(queue::any()?
                || changes::any_waiting()?
                || runner.indexes.has_new_metadata_indexes()?
                || runner.housekeeping.unused_tables.any()?)
        };
        match txn::in_txn(|| Ok(may_stay && has_work()?)) {
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
    /// Other databases wait for its process slot, or a restore has not ended. The launcher or a later commit comes back to it.
    Early,
}

/// What pg_stat_activity says of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shown {
    documents: usize,
    at_gateway: usize,
}

struct Runner {
    shown: Option<Shown>,
    begun: Instant,
    checked: Instant,
    /// When something last moved; None before anything has, so that a worker with nothing to do leaves at once.
    moved: Option<Instant>,
    /// When its turn ended: it waits for what is at the gateway, and sends nothing more.
    leaving: Option<Instant>,
    leases: Leases,
    backoff: Backoff,
    intake: Intake,
    open: OpenDocuments,
    queue: SendQueue,
    link: GatewayLink,
    pauses: Pauses,
    unsaved: UnsavedVectors,
    housekeeping: Housekeeping,
    indexes: Indexes,
    log: Log,
}

impl Runner {
    fn new(died_at: Vec<i64>) -> Runner {
        Runner {
            shown: None,
            begun: Instant::now(),
            checked: Instant::now(),
            moved: None,
            leaving: None,
            leases: Leases::new(died_at),
            backoff: Backoff::default(),
            intake: Intake::default(),
            open: OpenDocuments::default(),
            queue: SendQueue::default(),
            link: GatewayLink::new(),
            pauses: Pauses::default(),
            unsaved: UnsavedVectors::default(),
            housekeeping: Housekeeping::new(),
            indexes: Indexes::default(),
            log: Log::default(),
        }
    }

    /// Works until there is nothing to do for a while, the database is wanted, the extension is gone, or others
    /// want the process slot.
    fn work(&mut self) -> Left {
        if !matches!(txn::in_txn(server_catalogs::is_installed), Ok(true)) {
            return Left::Done;
        }
        // What it changed now would not fit what comes after.
        if matches!(txn::in_txn(vectors::is_being_restored), Ok(true)) {
            return Left::Early;
        }
        self.housekeeping.check_tables(&mut self.log);
        loop {
            report::check_interrupts();
            background::reload_settings();
            self.open.outcomes().report_failed(false);
            if self.checked.elapsed() > CHECK_EVERY {
                self.checked = Instant::now();
                if !may_stay() {
                    return Left::Done;
                }
                let is_over = self.begun.elapsed() > TURN && wake::slots_are_short();
                self.leaving = is_over.then(|| self.leaving.unwrap_or_else(Instant::now));
            }
            if self.backoff.is_waiting(Instant::now()) {
                // In steps short enough to notice DROP DATABASE.
                latch::wait(CHECK_EVERY);
                continue;
            }
            if self.backoff.is_unfinished() && self.leaving.is_some() {
                // The next worker takes over.
                return Left::Early;
            }
            if let Some(fault) = self.backoff.take_unfinished() {
                leases::give_back_all(fault, &mut self.backoff, self.open.outcomes());
                continue;
            }
            if !self.leases.is_taken_over() {
                if let Err(error) = self.leases.take_over(self.open.outcomes()) {
                    report::log(&format!("worker cannot release leases: {error}"));
                    let pause = self.backoff.count_fault();
                    self.backoff.wait(pause, Instant::now());
                }
                continue;
            }
            let moved = self.step();
            self.show();
            match moved {
                Ok(_) if self.leaving.is_some_and(|since| self.may_leave(since)) => {
                    if let Err(error) = txn::in_txn(|| queue::release_all(Duration::ZERO, None, false)) {
                        report::log(&format!("worker cannot give jobs back: {error}"));
                    }
                    return Left::Early;
                }
                Ok(true) => {
                    self.moved = Some(Instant::now());
                    self.backoff.reset();
                    self.housekeeping.run_now_and_then(&mut self.indexes, &mut self.log);
                }
                Ok(false) if !self.is_idle() => {
                    self.housekeeping.run_now_and_then(&mut self.indexes, &mut self.log);
                    self.pause();
                }
                Ok(false) => {
                    let idle_timeout = settings::worker_idle_timeout();
                    let has_waited = self.moved.is_none_or(|moved| moved.elapsed() > idle_timeout);
                    // It stays while an index is being built, too: it must end that for a DROP DATABASE.
                    let nothing_left = self.housekeeping.run(&mut self.indexes, &mut self.log);
                    if self.housekeeping.has_logged() {
                        self.moved = Some(Instant::now());
                    } else if nothing_left && has_waited && !wake::indexer_runs() {
                        return Left::Done;
                    }
                    self.pause();
                }
                // Only this round is lost.
                Err(error) if error.is_conflict() => {
                    self.log.write("worker waits for somebody's lock", &error);
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
        let Runner { intake, open, queue, link, pauses, unsaved, indexes, .. } = self;
        let received = match receive::save_again(link, open, pauses, unsaved, indexes)? {
            false => receive::receive(link, queue, open, pauses, unsaved, indexes)?,
            true => true,
        };
        let at_work = || jobs_at_work(open, intake);
        // Nothing more is sent while vectors that are paid for cannot be written.
        if unsaved.is_stuck() {
            // On a full disk this fails, too. No other worker takes the jobs of one that runs.
            if let Err(error) = self.leases.renew(at_work) {
                report::log(&format!("worker cannot renew leases: {error}"));
            }
            return Ok(received);
        }
        // First: a worker that slept longer than a lease must not claim what it has.
        self.leases.renew(at_work)?;
        open.release_now_and_then(intake.jobs());
        let may_begin = self.leaving.is_none();
        let taken = intake.advance(may_begin, open, queue, pauses, indexes)?;
        let sent = may_begin && send::send(queue, link, open, pauses, unsaved, &intake.coming())?;
        Ok(received || taken || sent)
    }

    /// The gateway or the database failed under several documents: all that was under way is given back. Vectors that
    /// could not be written are kept.
    fn start_over(&mut self, fault: Error) {
        self.link.close();
        self.open.clear();
        self.queue.clear();
        self.intake.clear();
        leases::give_back_all(fault, &mut self.backoff, self.open.outcomes());
    }

    /// Shows in pg_stat_activity what is under way, where that has changed.
    fn show(&mut self) {
        let now = Shown {
            documents: self.open.len() + self.intake.jobs().count(),
            at_gateway: self.link.in_flight().len(),
        };
        if self.shown.replace(now) == Some(now) {
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
        self.intake.is_idle() && !is_sending && self.unsaved.is_empty()
    }

    fn may_leave(&self, since: Instant) -> bool {
        let is_late = since.elapsed() > LEAVE_WITHIN;
        if !self.unsaved.is_empty() {
            return is_late;
        }
        // What is being prepared is written first, or a document that takes longer than a turn never would be.
        !self.intake.is_preparing() && (self.link.in_flight().is_empty() || is_late)
    }

    fn pause(&mut self) {
        // The helper thread wakes this process only once. While vectors cannot be saved nothing is taken in.
        if self.intake.is_prepared() && !self.unsaved.is_stuck() {
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

fn jobs_at_work(open: &OpenDocuments, intake: &Intake) -> Vec<Job> {
    open.jobs().chain(intake.jobs()).collect()
}
