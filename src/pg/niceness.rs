//! The scheduling priority of background processes, which give way to sessions.
//!
//! An index that is built while nobody writes to its table is built by several processes. PostgreSQL starts
//! the parallel workers with the server's own priority, so a question would have to wait for them. A setting
//! of the leading process, which its workers receive when they start, tells them how nice to be.

use super::setting;
use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting, pg_guard, pg_sys};
use std::ffi::{CString, c_void};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// How much nicer this process is than the server.
static NICENESS: AtomicI32 = AtomicI32::new(0);
/// The highest niceness that the kernel knows.
const MOST: i32 = 19;
const OF_SESSIONS: i32 = 5;
const OF_WORKER: i32 = 15;
const OF_ALL: i32 = 19;
/// How often, and at what interval, the niceness of a group is set until the kernel accepts it: for two
/// seconds in all.
const GROUP_TRIES: usize = 80;
const GROUP_PAUSE: Duration = Duration::from_millis(25);

static OF_HELPERS: GucSetting<i32> = GucSetting::<i32>::new(0);

/// Defines the setting; called from _PG_init. Users do not see it, and only a superuser could set it.
pub fn define_setting() {
    // SAFETY: the hook is guarded and does not fail.
    unsafe {
        GucRegistry::define_int_guc_with_hooks(
            c"kb.helpers_niceness",
            c"Sets the niceness of parallel workers relative to the server.",
            c"kb sets it for the parallel workers that it starts.",
            &OF_HELPERS,
            0,
            MOST,
            GucContext::Suset,
            GucFlags::NO_SHOW_ALL | GucFlags::NO_RESET_ALL | GucFlags::DISALLOW_IN_FILE,
            None,
            Some(assign),
            None,
        );
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn assign(niceness: i32, _extra: *mut c_void) {
    // SAFETY: a plain variable of this process.
    if unsafe { pg_sys::InitializingParallelWorker } {
        be_nicer_by(niceness);
    }
}

/// Lets sessions have the processor first from now on, so that a question that arrives during ingestion waits
/// for its own work only. (If a session and this process compete for a core, the session gets three quarters
/// of it. The rest must not be smaller, because others may wait for a lock that this process has.)
pub fn let_sessions_go_first() {
    be(OF_SESSIONS);
}

/// Lets sessions and the worker have the processor first from now on. (If a session competes with this
/// process for a core, it gets all but a thirtieth; the worker gets nine tenths.)
pub fn let_worker_go_first() {
    be(OF_WORKER);
}

/// Lets all other processes have the processor first from now on.
pub fn let_all_go_first() {
    be(OF_ALL);
}

/// Whether [`let_all_go_first`] was called.
pub fn is_last() -> bool {
    NICENESS.load(Ordering::Relaxed) == OF_ALL
}

fn be(niceness: i32) {
    let before = NICENESS.swap(niceness, Ordering::Relaxed);
    be_nicer_by(niceness - before);
    let niceness = CString::new(niceness.to_string()).unwrap_or_default();
    setting::set_for_process(c"kb.helpers_niceness", &niceness);
}

/// Raises the niceness. If the kernel refuses, nothing changes.
fn be_nicer_by(more: i32) {
    if more <= 0 {
        return;
    }
    // SAFETY: system calls that affect this process only.
    let (niceness, is_leader) = unsafe { (libc::nice(more), libc::getsid(0) == libc::getpid()) };
    // Every process of PostgreSQL leads a session. Where Linux schedules sessions as groups (sched(7),
    // autogroup), the niceness of a process counts only within its group, and the group has a niceness of its
    // own.
    if is_leader && niceness > 0 {
        set_group(niceness);
    }
}

/// Sets the niceness of this process's group. Linux accepts one such change in a tenth of a second on the
/// whole machine and refuses those that come sooner. Without further tries, only one of the processes that
/// start a build together would lose the server's priority.
fn set_group(niceness: i32) {
    for _ in 0..GROUP_TRIES {
        match std::fs::write("/proc/self/autogroup", niceness.to_string()) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(GROUP_PAUSE),
            _ => return,
        }
    }
}
