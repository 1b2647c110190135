//! Explains the failure of a statement in a database in which the extension was not updated. A new package
//! replaces the library for the whole server, while each database keeps its own tables until ALTER EXTENSION
//! kb UPDATE runs there.

use kb_types::error::Error;
use pgrx::datum::FromDatum;
use pgrx::htup::heap_getattr_raw;
use pgrx::pg_sys;
use pgrx::pg_sys::errcodes::PgSqlErrorCode as Code;
use pgrx::pg_sys::panic::CaughtError;
use pgrx::{PgLogLevel, PgTryBuilder};
use std::cell::Cell;
use std::num::NonZeroUsize;
use std::panic::AssertUnwindSafe;

const LIBRARY: &str = env!("CARGO_PKG_VERSION");

thread_local! {
    /// Whether both versions were found equal. They then stay equal, because a process keeps its library.
    static IS_SAME: Cell<bool> = const { Cell::new(false) };
}

/// Prepares or runs a statement, which names tables, columns and functions. If one of these is missing and
/// the extension has another version than the library, the error says that instead.
pub fn checked<T>(prepare: impl FnOnce() -> T) -> T {
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
        super::report::report(Error::State { problem, hint }).report(PgLogLevel::ERROR);
    }
    caught.rethrow()
}

/// Whether the extension is in this database, and CREATE EXTENSION is not under way.
pub fn is_installed() -> bool {
    installed().is_some()
}

/// The version of the extension in this database, or None while it is being created or dropped.
fn installed() -> Option<String> {
    // SAFETY: the catalog is open while it is scanned, and the tuple is valid until the scan ends. The text
    // is copied before.
    unsafe {
        let oid = pg_sys::get_extension_oid(c"kb".as_ptr(), true);
        if oid == pg_sys::InvalidOid {
            return None;
        }
        let relation = pg_sys::table_open(pg_sys::ExtensionRelationId, pg_sys::AccessShareLock as i32);
        let mut key = pg_sys::ScanKeyData::default();
        pg_sys::ScanKeyInit(
            &mut key,
            pg_sys::Anum_pg_extension_oid as i16,
            pg_sys::BTEqualStrategyNumber as pg_sys::StrategyNumber,
            pg_sys::Oid::from(pg_sys::F_OIDEQ),
            pg_sys::Datum::from(oid),
        );
        let index = pg_sys::Oid::from(pg_sys::ExtensionOidIndexId);
        let scan = pg_sys::systable_beginscan(relation, index, true, std::ptr::null_mut(), 1, &mut key);
        let tuple = pg_sys::systable_getnext(scan);
        let version = (!tuple.is_null()).then(|| {
            let column = NonZeroUsize::new(pg_sys::Anum_pg_extension_extversion as usize)?;
            let text = heap_getattr_raw(tuple, column, (*relation).rd_att)?;
            String::from_datum(text, false)
        });
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(relation, pg_sys::AccessShareLock as i32);
        version.flatten()
    }
}
