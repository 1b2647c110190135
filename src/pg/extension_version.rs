//! Says that the extension was not updated, where a statement of kb fails in a database because of that: the library is the
//! server's and newer, once a package was installed, and the tables are the database's own.

use crate::error::Error;
use pgrx::pg_sys::panic::{CaughtError, ErrorReport};
use pgrx::pg_sys::{self, errcodes::PgSqlErrorCode as Code};
use pgrx::{PgLogLevel, PgTryBuilder};
use std::cell::Cell;
use std::ffi::CStr;
use std::panic::AssertUnwindSafe;

const LIBRARY: &str = env!("CARGO_PKG_VERSION");

thread_local! {
    /// Once they are the same they stay it: a process keeps its library.
    static IS_SAME: Cell<bool> = const { Cell::new(false) };
}

/// Prepares or runs a statement, which names tables, columns and functions. If one is not there, and the extension is of
/// another version than the library, the error is about that. Call between SPI_connect and SPI_finish.
pub(super) fn checked<T>(prepare: impl FnOnce() -> T) -> T {
    let Some(version) = (if IS_SAME.get() { None } else { installed() }) else { return prepare() };
    if version == LIBRARY {
        IS_SAME.set(true);
        return prepare();
    }
    PgTryBuilder::new(AssertUnwindSafe(prepare)).catch_others(|caught| explain(&version, caught)).execute()
}

fn explain<T>(version: &str, caught: CaughtError) -> T {
    if let CaughtError::PostgresError(report) = &caught
        && let Code::ERRCODE_UNDEFINED_TABLE
        | Code::ERRCODE_UNDEFINED_COLUMN
        | Code::ERRCODE_UNDEFINED_FUNCTION = report.sql_error_code()
    {
        let problem = format!(
            "extension kb is version {version} in this database, and its library {LIBRARY}: {}",
            report.message()
        );
        let hint = "Bring it up to date: ALTER EXTENSION kb UPDATE;".into();
        ErrorReport::from(Error::State { problem, hint }).report(PgLogLevel::ERROR);
    }
    caught.rethrow()
}

/// The version of the extension in this database; None while it is made or dropped.
fn installed() -> Option<String> {
    let sql = c"SELECT e.extversion FROM pg_catalog.pg_extension e WHERE e.extname = 'kb'";
    // SAFETY: SPI is connected. The text is copied before the row is freed.
    unsafe {
        let found = pg_sys::SPI_execute(sql.as_ptr(), pg_sys::ActiveSnapshotSet(), 1);
        if found != pg_sys::SPI_OK_SELECT as i32 || pg_sys::SPI_processed == 0 {
            return None;
        }
        let table = pg_sys::SPI_tuptable;
        let text = pg_sys::SPI_getvalue(*(*table).vals, (*table).tupdesc, 1);
        let version = (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned());
        pg_sys::SPI_freetuptable(table);
        version
    }
}
