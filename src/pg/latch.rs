//! Waiting on the process latch and a socket, never over a second at once.

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

/// The longest single wait; callers loop and check interrupts in between.
pub const LONGEST: Duration = Duration::from_secs(1);

/// Waits for the latch at most `timeout` (cut to a second). Ends the process when the postmaster died.
pub fn wait(timeout: Duration) -> Woken {
    wait_on(None, false, timeout)
}

/// Waits for the latch or for the socket to be readable (and writable, when `write`).
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
            // A ready socket is found at the next wait; the latch must not be lost.
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
