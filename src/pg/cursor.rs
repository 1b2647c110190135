//! A statement whose rows are fetched a few at a time, as long as more are wanted: an unnamed portal. It must
//! be read by the role that opened it, under the same settings, because policies and index access methods
//! look at both whenever they produce a row.

use super::pinned_settings::pinned;
use super::plans::plan;
use super::row::columns_of;
use super::spi::{Arg, Row, datums, result_rows};
use kb_types::error::{Error, Result};
use pgrx::pg_sys;

pub struct Cursor {
    portal: pg_sys::Portal,
    /// Whether there may be further rows.
    is_open: bool,
}

impl Cursor {
    /// Opens a read-only statement. All of its rows come from the snapshot of the calling statement.
    pub fn open(sql: &str, args: &[Arg]) -> Result<Cursor> {
        let portal = connected(|| {
            let plan = plan(sql, args.iter().map(Arg::type_oid).collect(), false)?;
            let (mut values, nulls) = datums(args);
            // SAFETY: connected; the portal copies the values, and holds the plan by itself.
            unsafe {
                let no_name = std::ptr::null();
                Ok(pg_sys::SPI_cursor_open(no_name, plan.ptr, values.as_mut_ptr(), nulls.as_ptr(), true))
            }
        })?;
        if portal.is_null() {
            return Err(Error::Internal(format!("this statement cannot be opened: {sql}")));
        }
        Ok(Cursor { portal, is_open: true })
    }

    /// The names and types of the columns.
    pub fn columns(&self) -> Vec<(String, pg_sys::Oid)> {
        // SAFETY: an open portal has the description of its rows.
        unsafe { columns_of((*self.portal).tupDesc) }
    }

    /// Fetches the next rows, at most `most` of them. There are no further rows if it returns fewer.
    pub fn next<T>(&mut self, most: usize, each: impl FnMut(&Row) -> Result<T>) -> Result<Vec<T>> {
        if !self.is_open || most == 0 {
            return Ok(Vec::new());
        }
        let rows = connected(|| {
            // SAFETY: connected; the portal is open until this is dropped.
            unsafe {
                pg_sys::SPI_cursor_fetch(self.portal, true, most.min(i32::MAX as usize) as std::ffi::c_long);
                result_rows(each)
            }
        })?;
        self.is_open = rows.len() >= most;
        Ok(rows)
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        // An ERROR arrives as a panic. It ends the transaction or savepoint, and the portal with it.
        if !std::thread::panicking() {
            // SAFETY: the portal is open and does not run.
            unsafe { pg_sys::SPI_cursor_close(self.portal) };
        }
    }
}

fn connected<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    // SAFETY: connect and finish pair up on every path that returns. An ERROR unwinds, and the abort of the
    // transaction closes SPI.
    pinned(|| unsafe {
        if pg_sys::SPI_connect() != pg_sys::SPI_OK_CONNECT as i32 {
            return Err(Error::Internal("SPI_connect failed".into()));
        }
        let result = work();
        pg_sys::SPI_finish();
        result
    })
}
