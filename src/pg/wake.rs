//! Wakes the worker at commit, and knows for which knowledge bases this transaction has enqueued work.
//!
//! A rollback discards the request. PREPARE TRANSACTION clears it, so COMMIT PREPARED wakes nobody; the next
//! commit, or the launcher, finds the jobs.
//!
//! **Invariant:** the commit callback does nothing that can fail. An ERROR or a panic there takes the whole
//! server down.

use super::{background, pidfile, start_mark};
use background::Process;
use pgrx::pg_sys;
use pidfile::Watched;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::sync::Once;

thread_local! {
    /// The knowledge bases for which the open transaction enqueued work.
    static ENQUEUED: RefCell<BTreeSet<i64>> = const { RefCell::new(BTreeSet::new()) };
    static PENDING: Cell<bool> = const { Cell::new(false) };
    /// The worker of this database.
    static WORKER: RefCell<Watched> = const { RefCell::new(Watched::new()) };
}

/// Notes that work was enqueued. The commit, and only the commit, wakes or starts the worker.
pub fn at_commit(kb_no: i64) {
    look_at_commit();
    ENQUEUED.with_borrow_mut(|set| set.insert(kb_no));
}

/// Requests that the commit wake or start the worker for work that concerns no single document.
pub fn look_at_commit() {
    static REGISTER: Once = Once::new();
    REGISTER.call_once(|| {
        // SAFETY: the callback stays loaded as long as the library.
        unsafe { pg_sys::RegisterXactCallback(Some(on_xact_event), std::ptr::null_mut()) };
    });
    PENDING.set(true);
}

/// Whether the open transaction enqueued work for this knowledge base.
pub fn enqueued_here(kb_no: i64) -> bool {
    ENQUEUED.with_borrow(|set| set.contains(&kb_no))
}

/// HAZARD: runs while the transaction ends. An ERROR or panic here takes the whole cluster down, so it does
/// nothing that can fail: it reads flags, tries a file lock, sends a signal and takes a slot in shared
/// memory.
unsafe extern "C-unwind" fn on_xact_event(event: pg_sys::XactEvent::Type, _arg: *mut std::ffi::c_void) {
    use pg_sys::XactEvent::{XACT_EVENT_ABORT, XACT_EVENT_COMMIT, XACT_EVENT_PREPARE};
    match event {
        XACT_EVENT_COMMIT => {
            if PENDING.replace(false) {
                start_or_wake_worker();
            }
        }
        XACT_EVENT_ABORT | XACT_EVENT_PREPARE => PENDING.set(false),
        _ => return,
    }
    let _ = ENQUEUED.try_with(|set| set.try_borrow_mut().map(|mut set| set.clear()));
}

/// Wakes the worker of this database, or starts it. Returns false if no process slot is free.
fn start_or_wake_worker() -> bool {
    let is_awake = WORKER.with_borrow_mut(|worker| worker.wake(&worker_name(background::my_database())));
    is_awake || start_worker()
}

/// Starts the worker of this database if it does not run. Returns false if no process slot is free.
pub fn ensure_worker() -> bool {
    worker_runs() || start_worker()
}

/// Whether the worker of this database runs.
pub fn worker_runs() -> bool {
    pidfile::presence(&worker_name(background::my_database())) != pidfile::Presence::Absent
}

/// Requests a worker that does not run. If no slot is free, this tells the launcher.
fn start_worker() -> bool {
    // The launcher gives each database its turn, so a busy database must wait for its own.
    if slots_are_short() {
        return false;
    }
    let database = background::my_database();
    let is_asked = start(&worker_name(database), || background::register_dynamic(Process::Worker, database));
    if !is_asked && background::preloaded() {
        say_slots_short();
    }
    is_asked
}

/// Requests a process, unless somebody did so a moment ago; the requested process looks for work when it
/// starts. Returns false if no slot is free.
fn start(name: &str, ask: impl FnOnce() -> bool) -> bool {
    if !start_mark::take(name) {
        return true;
    }
    let is_asked = ask();
    if !is_asked {
        start_mark::clear(name);
    }
    is_asked
}

/// Notes that this process has its pid file and works, so that another may be started as soon as it has
/// ended.
pub fn has_started(name: &str) {
    start_mark::clear(name);
}

/// A file that exists while databases wait for a process slot.
const SHORT_PATH: &CStr = c"pg_stat_tmp/kb.slots_short";

/// Whether the launcher found no process slot for some database, and therefore lets databases take turns.
pub fn slots_are_short() -> bool {
    // Without preload there is no launcher, so the file is from an earlier start. SAFETY: a system call on a
    // constant path, which cannot fail in a transaction's callback.
    background::preloaded() && unsafe { libc::access(SHORT_PATH.as_ptr(), libc::F_OK) == 0 }
}

/// Tells the launcher that some database found no process slot.
pub fn say_slots_short() {
    // SAFETY: a system call on a constant path, which cannot fail in a transaction's callback.
    unsafe {
        let file = libc::open(SHORT_PATH.as_ptr(), libc::O_CREAT | libc::O_WRONLY | libc::O_CLOEXEC, 0o600);
        if file >= 0 {
            libc::close(file);
        }
    }
}

/// Undoes [`say_slots_short`].
pub fn clear_slots_short() -> std::io::Result<()> {
    match std::fs::remove_file(SHORT_PATH.to_string_lossy().as_ref()) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Starts the gateway if it does not run. Returns false if no process slot is free.
pub fn start_gateway() -> bool {
    // With preload the postmaster restarts the gateway and keeps its slot.
    gateway_runs()
        || background::preloaded()
        || start(GATEWAY_NAME, || background::register_dynamic(Process::Gateway, pg_sys::InvalidOid))
}

/// Whether the gateway runs.
pub fn gateway_runs() -> bool {
    pidfile::presence(GATEWAY_NAME) != pidfile::Presence::Absent
}

/// The most indexes for which the indexer can be asked at once.
pub const MOST_INDEXES: usize = background::MOST_ASKED;

/// Starts the indexer of this database if it does not run, to build the indexes of these tables.
pub fn start_indexer(tables: &[u32]) -> bool {
    let database = background::my_database();
    let name = indexer_name(database);
    // An indexer that was requested just now has not locked its file yet.
    if pidfile::presence(&name) != pidfile::Presence::Absent || !start_mark::take(&name) {
        return true;
    }
    let is_registered = background::register_indexer(database, tables);
    if !is_registered {
        start_mark::clear(&name);
    }
    is_registered
}

/// Whether the indexer of this database runs.
pub fn indexer_runs() -> bool {
    pidfile::presence(&indexer_name(background::my_database())) != pidfile::Presence::Absent
}

/// Ends the indexer of this database. Any index that it was building is built again later.
pub fn stop_indexer() {
    pidfile::terminate(&indexer_name(background::my_database()));
}

/// The name of the gateway's pid file.
pub const GATEWAY_NAME: &str = "gateway";

/// The name of the pid file of a database's worker.
pub fn worker_name(database: pg_sys::Oid) -> String {
    format!("worker.{}", database.to_u32())
}

/// The name of the pid file of a database's indexer.
pub fn indexer_name(database: pg_sys::Oid) -> String {
    format!("indexer.{}", database.to_u32())
}
