//! Whom a background process lets have the processor first.
//!
//! What is built while nobody writes is built by several processes. PostgreSQL starts those that help, parallel workers, with the server's own
//! priority, so a question would wait for them: a setting of the process that they help, which they are given when they
//! begin, tells them how nice it is.

use super::setting;
use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting, pg_guard, pg_sys};
use std::ffi::{CString, c_void};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// By so much this process is nicer than the server.
static NICENESS: AtomicI32 = AtomicI32::new(0);
/// What the kernel knows at most.
const MOST: i32 = 19;
const OF_SESSIONS: i32 = 5;
const OF_WORKER: i32 = 15;
const OF_ALL: i32 = 19;
/// How often, and how long apart, a group's niceness is set until it is taken: for two seconds.
const GROUP_TRIES: usize = 80;
const GROUP_PAUSE: Duration = Duration::from_millis(25);

static OF_HELPERS: GucSetting<i32> = GucSetting::<i32>::new(0);

/// Defines the setting; from _PG_init. Nobody sees it, and only a superuser could set it.
pub fn define_setting() {
    // SAFETY: the hook is guarded and does not fail.
    unsafe {
        GucRegistry::define_int_guc_with_hooks(
            c"kb.helpers_niceness",
            c"Niceness of parallel workers above the server's.",
            c"Set by kb for those that help it.",
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

/// Lets sessions have the processor first, from now on: who asks while documents come waits for his own work only. (Of two that
/// want a core, a session gets three quarters of it. Not less is left, because others may wait for a lock that this process has.)
pub fn let_sessions_go_first() {
    be(OF_SESSIONS);
}

/// Lets sessions and the worker have the processor first, from now on. (Of two that want a core, a session gets all but a thirtieth of
/// it, the worker nine tenths.)
pub fn let_worker_go_first() {
    be(OF_WORKER);
}

/// Lets all other processes have the processor first, from now on.
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

/// It may be refused; then nothing changes.
fn be_nicer_by(more: i32) {
    if more <= 0 {
        return;
    }
    // SAFETY: system calls on this process.
    let (niceness, is_leader) = unsafe { (libc::nice(more), libc::getsid(0) == libc::getpid()) };
    // Every process of PostgreSQL leads a session. Where Linux schedules sessions as groups (sched(7), autogroup), the
    // niceness of a process counts within its own only, and the group has one of its own.
    if is_leader && niceness > 0 {
        set_group(niceness);
    }
}

/// Linux changes one group in a tenth of a second, of all that are on the machine, and refuses what comes sooner: the processes
/// that begin a build together would keep the server's priority, all but one.
fn set_group(niceness: i32) {
    for _ in 0..GROUP_TRIES {
        match std::fs::write("/proc/self/autogroup", niceness.to_string()) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(GROUP_PAUSE),
            _ => return,
        }
    }
}
