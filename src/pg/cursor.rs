//! A statement whose rows are read some at a time, as long as more are wanted: an unnamed portal. Who reads from it must be who opened
//! it, and under the same settings: policies, and the access methods of indexes, look at both whenever a row is made.

use super::pinned_settings::pinned;
use super::plans::plan;
use super::spi::{Arg, Row, datums, result_rows};
use kb_types::error::{Error, Result};
use pgrx::pg_sys;

pub struct Cursor {
    portal: pg_sys::Portal,
    /// Whether it may have further rows.
    is_open: bool,
}

impl Cursor {
    /// Begins a statement that changes nothing. All its rows are those of the snapshot of the calling statement.
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

    /// The next rows, `most` at most. Where it gives fewer, there are no others.
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
        // An ERROR, which comes as a panic, ends the transaction or savepoint, and with it the portal.
        if !std::thread::panicking() {
            // SAFETY: it is open, and does not run.
            unsafe { pg_sys::SPI_cursor_close(self.portal) };
        }
    }
}

fn connected<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    // SAFETY: connect and finish pair up on every path that returns; an ERROR unwinds and transaction abort closes SPI.
    pinned(|| unsafe {
        if pg_sys::SPI_connect() != pg_sys::SPI_OK_CONNECT as i32 {
            return Err(Error::Internal("SPI_connect failed".into()));
        }
        let result = work();
        pg_sys::SPI_finish();
        result
    })
}
