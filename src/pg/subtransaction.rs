//! A piece of work that an error undoes alone, while the rest of the transaction stands.

use super::report::from_caught;
use kb_types::error::{Error, Result};
use pgrx::pg_sys::panic::CaughtError;
use pgrx::{PgTryBuilder, pg_sys};
use std::panic::AssertUnwindSafe;

/// Runs `work` in a subtransaction. On Err, ERROR or panic it is rolled back, and the error is returned.
pub fn in_subtransaction<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    in_subtransaction_with_report(work).map_err(|raised| raised.error)
}

/// An error, and what its report says besides. These may repeat values of rows.
pub struct Raised {
    pub error: Error,
    pub detail: Option<String>,
    pub hint: Option<String>,
}

impl From<Error> for Raised {
    fn from(error: Error) -> Raised {
        Raised { detail: error.detail(), hint: error.hint(), error }
    }
}

/// Does the same, and returns an error with its whole report.
pub fn in_subtransaction_with_report<T>(work: impl FnOnce() -> Result<T>) -> std::result::Result<T, Raised> {
    // SAFETY: this does what PL/pgSQL does for a block with EXCEPTION. Memory context and resource owner are
    // those from before, and each begin pairs with one release or rollback.
    let (context, owner) = unsafe { (pg_sys::CurrentMemoryContext, pg_sys::CurrentResourceOwner) };
    let result = PgTryBuilder::new(AssertUnwindSafe(|| {
        // SAFETY: as above.
        unsafe {
            pg_sys::BeginInternalSubTransaction(std::ptr::null());
            pg_sys::CurrentMemoryContext = context;
        }
        let value = work().map_err(Raised::from)?;
        // SAFETY: as above.
        unsafe { pg_sys::ReleaseCurrentSubTransaction() };
        Ok(value)
    }))
    .catch_others(|caught| {
        let said = match &caught {
            CaughtError::PostgresError(report) | CaughtError::ErrorReport(report) => {
                [report.detail(), report.hint()]
            }
            CaughtError::RustPanic { .. } => [None, None],
        };
        let [detail, hint] = said.map(|text| text.map(str::to_string));
        Err(Raised { detail, hint, error: from_caught(caught) })
    })
    .catch_rust_panic(|caught| Err(Raised::from(from_caught(caught))))
    .execute();
    // SAFETY: as above.
    unsafe {
        if result.is_err() {
            pg_sys::CurrentMemoryContext = context;
            pg_sys::RollbackAndReleaseCurrentSubTransaction();
        }
        pg_sys::CurrentMemoryContext = context;
        pg_sys::CurrentResourceOwner = owner;
    }
    result
}

/// Whether the error is a request of the user or the operator, which must not be ignored.
pub fn is_cancel(error: &Error) -> bool {
    matches!(error, Error::Database { sqlstate, .. } if sqlstate.starts_with("57"))
}
