//! A limit on the time of statements by which a background process runs code of users.

use pgrx::pg_sys;
use std::time::{Duration, Instant};

/// PostgreSQL's own statement timer (utils/timeout.h), which nothing else sets in a background process.
const STATEMENT_TIMEOUT: i32 = 3;

unsafe extern "C-unwind" {
    fn enable_timeout_after(id: i32, delay_ms: i32);
    fn disable_timeout(id: i32, keep_indicator: bool);
}

/// Runs `work`. A statement in it that still runs when the time is over ends with an ERROR (57014). The time
/// that was taken is added to `spent`, also after an error. For background processes only.
pub fn within<T>(limit: Duration, spent: &mut Duration, work: impl FnOnce() -> T) -> T {
    let milliseconds = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX).max(1);
    // SAFETY: the timer is registered for every process that is connected to a database.
    unsafe { enable_timeout_after(STATEMENT_TIMEOUT, milliseconds) };
    let _timer = Timer { begun: Instant::now(), spent };
    work()
}

/// Stops the timer when it is dropped, also by an error.
struct Timer<'a> {
    begun: Instant,
    spent: &'a mut Duration,
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        *self.spent += self.begun.elapsed();
        // SAFETY: as above. A cancellation that the timer requested just before its end must not cancel a
        // later statement.
        unsafe {
            disable_timeout(STATEMENT_TIMEOUT, false);
            pg_sys::QueryCancelPending = 0;
        }
    }
}
