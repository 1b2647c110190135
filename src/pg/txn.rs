//! Transactions of a background process, and facts about the current transaction.

use super::report::from_caught;
use super::{background, extension_version};
use kb_types::error::{Error, Result};
use pgrx::{PgTryBuilder, pg_sys};
use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::sync::Once;

/// Runs `work` in a transaction of its own. It commits on Ok, and aborts on Err, ERROR or panic, which are
/// all returned as Err. For background processes only, outside any transaction.
pub fn in_txn<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    let (mut work, mut value) = (Some(work), None);
    run_in_txn(&mut || {
        if let Some(work) = work.take() {
            value = Some(work()?);
        }
        Ok(())
    })?;
    value.ok_or_else(|| Error::Internal("a transaction did nothing".into()))
}

/// The function is not generic: it would be compiled for each of many callers.
fn run_in_txn(work: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    let result = PgTryBuilder::new(AssertUnwindSafe(|| {
        // SAFETY: no transaction is open. Start and commit pair up, and the snapshot is popped before the
        // commit. Any failure leads to the abort below.
        unsafe {
            pg_sys::SetCurrentStatementStartTimestamp();
            pg_sys::StartTransactionCommand();
            pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
        }
        work()?;
        // SAFETY: as above.
        unsafe {
            pg_sys::PopActiveSnapshot();
            pg_sys::CommitTransactionCommand();
        }
        Ok(())
    }))
    .catch_others(|caught| Err(from_caught(caught)))
    .catch_rust_panic(|caught| Err(from_caught(caught)))
    .execute();
    // SAFETY: after an error a transaction may be open or half ended. AbortCurrentTransaction ends it
    // (PostgresMain does the same), pops snapshots and closes SPI. Statistics are reported outside any
    // transaction.
    unsafe {
        if result.is_err() {
            pg_sys::AbortCurrentTransaction();
        }
        // Nothing else reports them for a background process, and autovacuum must learn of the rows that the
        // process changed.
        pg_sys::pgstat_report_stat(false);
    }
    if result.as_ref().is_err_and(|error| UNDEFINED.contains(&error.sqlstate())) && is_extension_dropped() {
        background::exit(0);
    }
    result
}

/// The errors of a statement whose table, function or schema no longer exists.
const UNDEFINED: [&str; 3] = ["42P01", "42883", "3F000"];

/// Whether the extension was dropped while this process was at work. In that case the process has nothing
/// left to do, and errors about missing tables need no attention.
fn is_extension_dropped() -> bool {
    background::is_kb_process() && matches!(in_txn(|| Ok(extension_version::is_installed())), Ok(false))
}

/// Shows in pg_stat_activity what the process is doing.
pub fn report_activity(text: Option<&str>) {
    match text {
        Some(text) => show_activity(pg_sys::BackendState::STATE_RUNNING, text),
        None => show_activity(pg_sys::BackendState::STATE_IDLE, ""),
    }
}

/// Shows in pg_stat_activity what the process is waiting for.
pub fn report_idle(text: &str) {
    show_activity(pg_sys::BackendState::STATE_IDLE, text);
}

fn show_activity(state: pg_sys::BackendState::Type, text: &str) {
    let text = std::ffi::CString::new(text).unwrap_or_default();
    // SAFETY: copies the string into shared memory.
    unsafe { pg_sys::pgstat_report_activity(state, text.as_ptr()) };
}

/// Runs `work` under a fresh snapshot inside a longer statement, so that a waiting function sees what others
/// have committed since, at every isolation level.
pub fn with_latest_snapshot<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    push_latest_snapshot();
    let result = work();
    pop_snapshot();
    result
}

#[inline(never)]
fn push_latest_snapshot() {
    // SAFETY: push and pop pair up. An ERROR in between unwinds to the abort of the transaction, which pops
    // all snapshots.
    unsafe { pg_sys::PushActiveSnapshot(pg_sys::GetLatestSnapshot()) };
}

#[inline(never)]
fn pop_snapshot() {
    // SAFETY: as above.
    unsafe { pg_sys::PopActiveSnapshot() };
}

/// Whether this process runs a part of a parallel plan, and so cannot take a snapshot.
pub fn is_parallel() -> bool {
    // SAFETY: reads a variable of this process.
    unsafe { pg_sys::IsInParallelMode() }
}

thread_local! {
    /// The number of transactions that have ended and of savepoints that were rolled back.
    static ENDED: Cell<u64> = const { Cell::new(0) };
}

/// A number that changes when something that this transaction wrote is undone, or when the transaction ends.
pub fn epoch() -> u64 {
    static REGISTER: Once = Once::new();
    REGISTER.call_once(|| {
        // SAFETY: the callbacks stay loaded as long as the library.
        unsafe {
            pg_sys::RegisterXactCallback(Some(on_end), std::ptr::null_mut());
            pg_sys::RegisterSubXactCallback(Some(on_rollback), std::ptr::null_mut());
        }
    });
    ENDED.get()
}

/// HAZARD: runs while the transaction ends. An ERROR or panic here takes the whole cluster down.
unsafe extern "C-unwind" fn on_end(event: pg_sys::XactEvent::Type, _argument: *mut std::ffi::c_void) {
    use pg_sys::XactEvent::{XACT_EVENT_ABORT, XACT_EVENT_COMMIT, XACT_EVENT_PREPARE};
    if [XACT_EVENT_ABORT, XACT_EVENT_COMMIT, XACT_EVENT_PREPARE].contains(&event) {
        ENDED.set(ENDED.get().wrapping_add(1));
    }
}

/// HAZARD: as above.
unsafe extern "C-unwind" fn on_rollback(
    event: pg_sys::SubXactEvent::Type,
    _this: pg_sys::SubTransactionId,
    _parent: pg_sys::SubTransactionId,
    _argument: *mut std::ffi::c_void,
) {
    if event == pg_sys::SubXactEvent::SUBXACT_EVENT_ABORT_SUB {
        ENDED.set(ENDED.get().wrapping_add(1));
    }
}

/// Whether each statement sees what was committed before it began.
pub fn is_read_committed() -> bool {
    // SAFETY: reads this process's variable.
    unsafe { pg_sys::XactIsoLevel <= pg_sys::XACT_READ_COMMITTED as i32 }
}

/// Assigns a transaction id now, not with the first row that is written. A standby has none.
pub fn take_number() {
    if !super::report::in_recovery() {
        // SAFETY: called in a transaction, on a server that is no standby.
        unsafe { pg_sys::GetTopTransactionId() };
    }
}
