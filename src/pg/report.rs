//! Errors between Rust and PostgreSQL.

use super::background;
use kb_types::error::{Error, Result};
use kb_types::sizes;
use pgrx::pg_sys::panic::{CaughtError, ErrorReport};
use pgrx::pg_sys::{self, errcodes::PgSqlErrorCode};

/// Does the work of an SQL function, whose error becomes PostgreSQL's.
pub fn reported<T>(work: impl FnOnce() -> Result<T>) -> std::result::Result<T, ErrorReport> {
    work().map_err(report)
}

/// PostgreSQL's form of an error.
pub fn report(error: Error) -> ErrorReport {
    // What is too long for a field is too long for a message that names it.
    let cut = |text: String| sizes::cut(&text, sizes::MESSAGE).to_string();
    let mut report = ErrorReport::new(code(error.sqlstate()), cut(error.to_string()), "kb");
    if let Some(detail) = error.detail() {
        report = report.set_detail(cut(detail));
    }
    if let Some(hint) = error.hint() {
        report = report.set_hint(hint);
    }
    report
}

/// PostgreSQL packs the five characters six bits each (MAKE_SQLSTATE).
fn code(sqlstate: &str) -> PgSqlErrorCode {
    let packed = sqlstate.bytes().take(5).enumerate().fold(0i32, |packed, (i, byte)| {
        packed | ((i32::from(byte).wrapping_sub(i32::from(b'0')) & 0x3f) << (6 * i))
    });
    PgSqlErrorCode::from(packed)
}

fn unpack(code: PgSqlErrorCode) -> String {
    let packed = code as i32;
    (0..5).map(|i| char::from((((packed >> (6 * i)) & 0x3f) as u8) + b'0')).collect()
}

/// What a caught PostgreSQL error or Rust panic says.
pub fn from_caught(caught: CaughtError) -> Error {
    match caught {
        CaughtError::PostgresError(report) | CaughtError::ErrorReport(report) => Error::Database {
            sqlstate: unpack(report.sql_error_code()),
            message: report.message().to_string(),
        },
        CaughtError::RustPanic { ereport, .. } => Error::Internal(ereport.message().to_string()),
    }
}

/// Keeps Rust's backtraces, which carry paths of the build, out of error details whatever the server's
/// environment says. Once, before anything can fail.
pub fn without_backtraces() {
    // SAFETY: in _PG_init no other thread runs.
    unsafe {
        std::env::set_var("RUST_BACKTRACE", "0");
        std::env::set_var("RUST_LIB_BACKTRACE", "0");
    }
}

/// Writes a line to the server log.
pub fn log(message: &str) {
    pgrx::log!("kb: {message}");
}

/// Writes a warning to the server log or the client.
pub fn warning(message: &str) {
    pgrx::warning!("kb: {message}");
}

/// A NOTICE to the client.
pub fn notice(message: &str) {
    pgrx::notice!("{message}");
}

/// Runs a call that may have a key in its arguments. The statement is taken out of pg_stat_activity, and out of what is
/// logged or sent with an error, warning or notice: the statement itself, and the CONTEXT lines of functions around the
/// call, which repeat the statements they run. An error that `work` returns must be raised as it is, with no other call
/// in between.
pub fn hidden<T, E>(work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    // SAFETY: the text is copied; debug_query_string is only read (its owner frees its own pointer), and is set again
    // with the next statement. error_context_stack is the head of the list of callbacks that add CONTEXT. Each sets the
    // head when it is added and removed, and so does code that catches an error, so the list may be empty meanwhile.
    let around = unsafe {
        pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_RUNNING, c"<hidden by kb>".as_ptr());
        pg_sys::debug_query_string = std::ptr::null();
        let around = pg_sys::error_context_stack;
        pg_sys::error_context_stack = std::ptr::null_mut();
        around
    };
    let result = work();
    if result.is_ok() {
        // SAFETY: what it points to belongs to the callers of this call, who are still there.
        unsafe { pg_sys::error_context_stack = around };
    }
    result
}

/// Runs pending cancel, terminate and barrier requests; does not return when one ends the statement.
pub fn check_interrupts() {
    background::end_if_terminated();
    pgrx::check_for_interrupts!();
}

/// Whether this server is replaying WAL (hot standby).
pub fn in_recovery() -> bool {
    // SAFETY: reads shared state, no preconditions.
    unsafe { pg_sys::RecoveryInProgress() }
}
