//! Waits for the latch of the process and for a socket, never longer than a second at a time.

use pgrx::pg_sys;
use std::os::fd::RawFd;
use std::time::Duration;

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    Latch,
    Socket,
    Timeout,
}

/// The longest single wait. Callers loop, and check for interrupts in between.
pub const LONGEST: Duration = Duration::from_secs(1);

/// Waits for the latch for at most `timeout`, which is cut to a second. Ends the process if the postmaster
/// has died.
pub fn wait(timeout: Duration) -> Woken {
    wait_on(None, false, timeout)
}

/// Waits for the latch, or until the socket is readable (or writable, if `write` is set).
pub fn wait_for_socket(fd: RawFd, write: bool, timeout: Duration) -> Woken {
    wait_on(Some(fd), write, timeout)
}

fn wait_on(fd: Option<RawFd>, write: bool, timeout: Duration) -> Woken {
    let mut events = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
    if fd.is_some() {
        events |= pg_sys::WL_SOCKET_READABLE;
        if write {
            events |= pg_sys::WL_SOCKET_WRITEABLE;
        }
    }
    let millis = timeout.min(LONGEST).as_millis().max(1) as std::ffi::c_long;
    // SAFETY: MyLatch is this process's own; the descriptor stays open while its owner borrows it.
    unsafe {
        let woken = pg_sys::WaitLatchOrSocket(
            pg_sys::MyLatch,
            events as i32,
            fd.unwrap_or(-1),
            millis,
            pg_sys::PG_WAIT_EXTENSION,
        ) as u32;
        if woken & pg_sys::WL_LATCH_SET != 0 {
            pg_sys::ResetLatch(pg_sys::MyLatch);
            // The next wait reports a ready socket again; a set latch must not be lost.
            if woken & (pg_sys::WL_SOCKET_READABLE | pg_sys::WL_SOCKET_WRITEABLE) != 0 {
                return Woken::Socket;
            }
            return Woken::Latch;
        }
        if woken & (pg_sys::WL_SOCKET_READABLE | pg_sys::WL_SOCKET_WRITEABLE) != 0 {
            return Woken::Socket;
        }
        Woken::Timeout
    }
}
