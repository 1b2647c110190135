//! Waking the worker at commit, and knowing what this transaction has enqueued.
//!
//! Rolled back means that nothing happened. PREPARE TRANSACTION clears the flag, so COMMIT PREPARED wakes
//! nobody; the next commit, or the launcher, finds the jobs.
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
    /// Knowledge bases for which the open transaction enqueued work.
    static ENQUEUED: RefCell<BTreeSet<i64>> = const { RefCell::new(BTreeSet::new()) };
    static PENDING: Cell<bool> = const { Cell::new(false) };
    /// This database's worker.
    static WORKER: RefCell<Watched> = const { RefCell::new(Watched::new()) };
}

/// Remembers that work was enqueued: at commit, and only then, the worker is woken or started.
pub fn at_commit(kb_no: i64) {
    look_at_commit();
    ENQUEUED.with_borrow_mut(|set| set.insert(kb_no));
}

/// Has the worker woken or started at commit, for what is no document's work.
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

/// HAZARD: runs while the transaction ends. An ERROR or panic here takes the whole cluster down, so it
/// does nothing that can fail: flags, a file lock, a signal, a slot in shared memory.
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

/// Wakes this database's worker, or has one started; false when no process slot is free.
fn start_or_wake_worker() -> bool {
    let is_awake = WORKER.with_borrow_mut(|worker| worker.wake(&worker_name(background::my_database())));
    is_awake || start_worker()
}

/// Has this database's worker started if it does not run; false when no process slot is free.
pub fn ensure_worker() -> bool {
    worker_runs() || start_worker()
}

/// Whether this database's worker runs.
pub fn worker_runs() -> bool {
    pidfile::presence(&worker_name(background::my_database())) != pidfile::Presence::Absent
}

/// Asks for a worker that does not run; where no slot is free, tells the launcher.
fn start_worker() -> bool {
    // The launcher gives each database its turn, and a busy one must wait for its own.
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

/// Asks for a process, if nobody has a moment ago: that one looks for work when it is there. False when no slot is free.
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

/// This process has its pid file and works: when it has ended, another may be started at once.
pub fn has_started(name: &str) {
    start_mark::clear(name);
}

/// A file that is there while databases wait for a process slot.
const SHORT_PATH: &CStr = c"pg_stat_tmp/kb.slots_short";

/// Whether the launcher found no process slot for some database, and gives each its turn.
pub fn slots_are_short() -> bool {
    // Without preload there is no launcher to give turns: then the file is from an earlier start.
    // SAFETY: a system call on a constant path; nothing that can fail in a transaction's callback.
    background::preloaded() && unsafe { libc::access(SHORT_PATH.as_ptr(), libc::F_OK) == 0 }
}

/// Tells the launcher that some database found no process slot.
pub fn say_slots_short() {
    // SAFETY: a system call on a constant path; nothing that can fail in a transaction's callback.
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

/// Has the gateway started if it does not run; false when no process slot is free.
pub fn start_gateway() -> bool {
    // With preload the postmaster starts it again, and keeps its slot.
    gateway_runs()
        || background::preloaded()
        || start(GATEWAY_NAME, || background::register_dynamic(Process::Gateway, pg_sys::InvalidOid))
}

/// Whether the gateway runs.
pub fn gateway_runs() -> bool {
    pidfile::presence(GATEWAY_NAME) != pidfile::Presence::Absent
}

/// How many indexes the indexer can be asked for at once.
pub const MOST_INDEXES: usize = background::MOST_ASKED;

/// Has this database's indexer started if it does not run, and asks it for the indexes of these tables.
pub fn start_indexer(tables: &[u32]) -> bool {
    let database = background::my_database();
    let name = indexer_name(database);
    // One that was asked for just now has not locked its file yet.
    if pidfile::presence(&name) != pidfile::Presence::Absent || !start_mark::take(&name) {
        return true;
    }
    let is_registered = background::register_indexer(database, tables);
    if !is_registered {
        start_mark::clear(&name);
    }
    is_registered
}

/// Whether this database's indexer runs.
pub fn indexer_runs() -> bool {
    pidfile::presence(&indexer_name(background::my_database())) != pidfile::Presence::Absent
}

/// Ends this database's indexer; what it was building is built again later.
pub fn stop_indexer() {
    pidfile::terminate(&indexer_name(background::my_database()));
}

/// Name of the gateway's pid file.
pub const GATEWAY_NAME: &str = "gateway";

/// Name of a database's worker's pid file.
pub fn worker_name(database: pg_sys::Oid) -> String {
    format!("worker.{}", database.to_u32())
}

/// Name of a database's indexer's pid file.
pub fn indexer_name(database: pg_sys::Oid) -> String {
    format!("indexer.{}", database.to_u32())
}
