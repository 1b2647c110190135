//! Errors between Rust and PostgreSQL.

use super::background;
use kb_types::error::{Error, Result};
use kb_types::sizes;
use pgrx::pg_sys::panic::{CaughtError, ErrorReport};
use pgrx::pg_sys::{self, errcodes::PgSqlErrorCode};

/// Does the work of an SQL function, and turns its error into one of PostgreSQL.
pub fn reported<T>(work: impl FnOnce() -> Result<T>) -> std::result::Result<T, ErrorReport> {
    work().map_err(|error| {
        if matches!(error, Error::Stale { .. }) {
            set_own_code(error.sqlstate());
        }
        report(error)
    })
}

unsafe extern "C-unwind" {
    /// Sets the SQLSTATE of the error that is being reported (elog.c).
    safe fn errcode(packed: std::ffi::c_int) -> std::ffi::c_int;
}

/// Called by PostgreSQL while it reports an error. The argument is the packed SQLSTATE itself.
unsafe extern "C-unwind" fn set_code(code: *mut std::ffi::c_void) {
    errcode(code.addr() as i32);
}

/// Gives the error that is about to be raised an SQLSTATE that PostgreSQL does not know. The errors of
/// pgrx can only have PostgreSQL's, so a callback for CONTEXT lines, which may change the error that is
/// reported, sets this one.
fn set_own_code(sqlstate: &str) {
    // SAFETY: the callback lives in the memory of the transaction that the error aborts, and PostgreSQL
    // removes it from the list, as all others, where it catches the error: it sets the head of the list to
    // what it was there.
    unsafe {
        let size = size_of::<pg_sys::ErrorContextCallback>();
        let callback: *mut pg_sys::ErrorContextCallback =
            pg_sys::MemoryContextAlloc(pg_sys::TopTransactionContext, size).cast();
        *callback = pg_sys::ErrorContextCallback {
            previous: pg_sys::error_context_stack,
            callback: Some(set_code),
            arg: std::ptr::without_provenance_mut(packed(sqlstate) as usize),
        };
        pg_sys::error_context_stack = callback;
    }
}

/// An error in PostgreSQL's form.
pub fn report(error: Error) -> ErrorReport {
    // A text that is too long for its column is also too long for a message that repeats it.
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

/// The packed form of an SQLSTATE: six bits for each of its five characters (MAKE_SQLSTATE).
fn packed(sqlstate: &str) -> i32 {
    sqlstate.bytes().take(5).enumerate().fold(0i32, |packed, (i, byte)| {
        packed | ((i32::from(byte).wrapping_sub(i32::from(b'0')) & 0x3f) << (6 * i))
    })
}

fn code(sqlstate: &str) -> PgSqlErrorCode {
    PgSqlErrorCode::from(packed(sqlstate))
}

fn unpack(code: PgSqlErrorCode) -> String {
    let packed = code as i32;
    (0..5).map(|i| char::from((((packed >> (6 * i)) & 0x3f) as u8) + b'0')).collect()
}

/// The error that a caught PostgreSQL error or Rust panic describes.
pub fn from_caught(caught: CaughtError) -> Error {
    match caught {
        CaughtError::PostgresError(report) | CaughtError::ErrorReport(report) => Error::Database {
            sqlstate: unpack(report.sql_error_code()),
            message: report.message().to_string(),
            has_values: !is_of_analysis(report.file()),
        },
        CaughtError::RustPanic { ereport, .. } => Error::Internal(ereport.message().to_string()),
    }
}

/// Whether an error is raised in this file of PostgreSQL's source when a statement is analysed or rights are
/// checked, so that its message is about names in the statement. What else a statement calls may repeat
/// values of rows, whatever its SQLSTATE is: RAISE of a function, or a cast to regclass or regtype.
fn is_of_analysis(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or_default();
    name == "aclchk.c" || name.starts_with("parse_") && name != "parse_type.c"
}

/// Keeps Rust's backtraces, which contain paths of the build machine, out of error details, whatever the
/// environment of the server says. Must be called once, before anything can fail.
pub fn without_backtraces() {
    // SAFETY: _PG_init runs before this process has any other thread.
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

/// Sends a NOTICE to the client.
pub fn notice(message: &str) {
    pgrx::notice!("{message}");
}

/// Runs a call whose arguments may contain a key. The statement is hidden from pg_stat_activity and from
/// everything that is logged or sent with an error, warning or notice: the statement itself, and the CONTEXT
/// lines of the functions around the call, which repeat the statements that they run. An error that `work`
/// returns must be raised as it is, with no other call in between.
pub fn hidden<T, E>(work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    // SAFETY: the text is copied. debug_query_string is only read (its owner frees its own pointer), and the
    // next statement sets it again. error_context_stack is the head of the list of callbacks that add
    // CONTEXT. Each callback sets the head when it is added and removed, and so does code that catches an
    // error, so the list may be empty meanwhile.
    let around = unsafe {
        pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_RUNNING, c"<hidden by kb>".as_ptr());
        pg_sys::debug_query_string = std::ptr::null();
        let around = pg_sys::error_context_stack;
        pg_sys::error_context_stack = std::ptr::null_mut();
        around
    };
    let result = work();
    if result.is_ok() {
        // SAFETY: the entries of the list belong to the callers of this call, which are still on the stack.
        unsafe { pg_sys::error_context_stack = around };
    }
    result
}

/// Processes pending cancel, terminate and barrier requests. Does not return if one of them ends the
/// statement.
pub fn check_interrupts() {
    background::end_if_terminated();
    pgrx::check_for_interrupts!();
}

/// Whether this server is replaying WAL (hot standby).
pub fn in_recovery() -> bool {
    // SAFETY: reads shared state, and has no preconditions.
    unsafe { pg_sys::RecoveryInProgress() }
}
