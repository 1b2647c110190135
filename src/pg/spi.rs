//! SPI with cached plans: takes SQL text and arguments, and returns owned values. Every statement is parsed
//! and run under pinned settings ([`pinned_settings::pinned`]), so that no object of a session is found in
//! place of the one that kb means.
//!
//! **Invariant:** values are passed as `$n`, and identifiers are quoted ([`quote`]). Plans are cached by the
//! text of their statement, so the text must not vary with values. The one exception is the LIMIT of a
//! search, on which the planner's choice depends.
//!
//! [`read`] does not see what the same statement wrote. If a function reads after it wrote, the read must be
//! [`write`], too.

use super::plans::plan;
use super::row::FromColumn;
pub use super::row::{FromRow, Row};
use super::{extension_version, pinned_settings, setting};
use kb_types::Json;
use kb_types::error::{Error, Result};
use pgrx::datum::IntoDatum;
use pgrx::{JsonB, pg_sys};
use serde_json::Value;
use std::ffi::{CString, c_char};

/// An argument of a statement. The SQL text casts it if a more exact type matters.
#[derive(Debug, Clone, Copy)]
pub enum Arg<'a> {
    Text(&'a str),
    TextOrNull(Option<&'a str>),
    Int(i32),
    Long(i64),
    LongOrNull(Option<i64>),
    Double(f64),
    DoubleOrNull(Option<f64>),
    Bool(bool),
    Bytes(&'a [u8]),
    BytesOrNull(Option<&'a [u8]>),
    Json(&'a Value),
    JsonText(Option<&'a Json>),
    Floats(&'a [f32]),
    Ints(&'a [i32]),
    Longs(&'a [i64]),
    Texts(&'a [String]),
    Uuids(&'a [uuid::Uuid]),
    BytesArray(&'a [Vec<u8>]),
}

impl Arg<'_> {
    pub fn type_oid(&self) -> pg_sys::Oid {
        match self {
            Arg::Text(_) | Arg::TextOrNull(_) => pg_sys::TEXTOID,
            Arg::Int(_) => pg_sys::INT4OID,
            Arg::Long(_) | Arg::LongOrNull(_) => pg_sys::INT8OID,
            Arg::Double(_) | Arg::DoubleOrNull(_) => pg_sys::FLOAT8OID,
            Arg::Bool(_) => pg_sys::BOOLOID,
            Arg::Bytes(_) | Arg::BytesOrNull(_) => pg_sys::BYTEAOID,
            Arg::Json(_) | Arg::JsonText(_) => pg_sys::JSONBOID,
            Arg::Floats(_) => pg_sys::FLOAT4ARRAYOID,
            Arg::Ints(_) => pg_sys::INT4ARRAYOID,
            Arg::Longs(_) => pg_sys::INT8ARRAYOID,
            Arg::Texts(_) => pg_sys::TEXTARRAYOID,
            Arg::Uuids(_) => pg_sys::UUIDARRAYOID,
            Arg::BytesArray(_) => pg_sys::BYTEAARRAYOID,
        }
    }

    pub fn datum(&self) -> Option<pg_sys::Datum> {
        match *self {
            Arg::Text(v) => v.into_datum(),
            Arg::TextOrNull(v) => v.into_datum(),
            Arg::Int(v) => v.into_datum(),
            Arg::Long(v) => v.into_datum(),
            Arg::LongOrNull(v) => v.into_datum(),
            Arg::Double(v) => v.into_datum(),
            Arg::DoubleOrNull(v) => v.into_datum(),
            Arg::Bool(v) => v.into_datum(),
            Arg::Bytes(v) => v.into_datum(),
            Arg::BytesOrNull(v) => v.into_datum(),
            Arg::Json(v) => JsonB(v.clone()).into_datum(),
            Arg::JsonText(v) => v.and_then(|v| super::json::datum(v.as_str())),
            Arg::Floats(v) => Some(float_array(v)),
            Arg::Ints(v) => v.to_vec().into_datum(),
            Arg::Longs(v) => v.to_vec().into_datum(),
            Arg::Texts(v) => Some(text_array(v)),
            Arg::Uuids(v) => Some(uuid_array(v)),
            Arg::BytesArray(v) => v.iter().map(Vec::as_slice).collect::<Vec<_>>().into_datum(),
        }
    }
}

/// Makes a `real[]` in one copy: an array of many vectors would be slow element by element.
fn float_array(values: &[f32]) -> pg_sys::Datum {
    // SAFETY: the array has room for as many bytes as the values have.
    unsafe {
        let size = std::mem::size_of_val(values);
        let (array, data) = new_array(pg_sys::FLOAT4OID, values.len(), size);
        std::ptr::copy_nonoverlapping(values.as_ptr().cast(), data, size);
        array
    }
}

/// Makes a `uuid[]` in one copy.
fn uuid_array(values: &[uuid::Uuid]) -> pg_sys::Datum {
    const SIZE: usize = size_of::<uuid::Bytes>();
    // SAFETY: the array has room for sixteen bytes for each value, which need no alignment.
    unsafe {
        if values.is_empty() {
            return pg_sys::Datum::from(pg_sys::construct_empty_array(pg_sys::UUIDOID));
        }
        let (array, data) = new_array(pg_sys::UUIDOID, values.len(), values.len() * SIZE);
        for (i, value) in values.iter().enumerate() {
            std::ptr::copy_nonoverlapping(value.as_bytes().as_ptr(), data.add(i * SIZE), SIZE);
        }
        array
    }
}

/// Makes a `text[]` in one copy: it may have a thousand keys, and PostgreSQL would allocate twice for each.
fn text_array(values: &[String]) -> pg_sys::Datum {
    const HEADER: usize = pg_sys::VARHDRSZ;
    let size_of = |text: &String| (HEADER + text.len()).next_multiple_of(align_of::<i32>());
    // SAFETY: the array has room for all texts, each with its header, aligned to four bytes.
    unsafe {
        if values.is_empty() {
            return pg_sys::Datum::from(pg_sys::construct_empty_array(pg_sys::TEXTOID));
        }
        let (array, mut data) = new_array(pg_sys::TEXTOID, values.len(), values.iter().map(size_of).sum());
        for text in values {
            pgrx::varlena::set_varsize_4b(data.cast(), (HEADER + text.len()) as i32);
            std::ptr::copy_nonoverlapping(text.as_ptr(), data.add(HEADER), text.len());
            data = data.add(size_of(text));
        }
        array
    }
}

/// Makes an array of one dimension whose elements have `size` bytes in all and are not NULL. Also returns the
/// address of the elements.
unsafe fn new_array(element: pg_sys::Oid, count: usize, size: usize) -> (pg_sys::Datum, *mut u8) {
    // SAFETY: zeroed memory of the size of header, dimensions and elements, or an ERROR.
    unsafe {
        let header = size_of::<pg_sys::ArrayType>() + 2 * size_of::<i32>();
        let array = pg_sys::palloc0(header + size) as *mut pg_sys::ArrayType;
        pgrx::varlena::set_varsize_4b(array.cast(), (header + size) as i32);
        (*array).ndim = 1;
        (*array).dataoffset = 0;
        (*array).elemtype = element;
        let dims = (array as *mut u8).add(size_of::<pg_sys::ArrayType>()) as *mut i32;
        dims.write(count as i32);
        dims.add(1).write(1);
        (pg_sys::Datum::from(array), (array as *mut u8).add(header))
    }
}

/// How a statement uses snapshots and workers.
#[derive(Clone, Copy, PartialEq)]
enum How {
    Reads,
    ReadsInParallel,
    Writes,
}

fn run<T>(
    sql: &str,
    args: &[Arg],
    how: How,
    mut each: impl FnMut(&Row) -> Result<T>,
) -> Result<(Vec<T>, u64)> {
    let mut rows = Vec::new();
    let processed = run_each(sql, args, how, &mut |row| {
        rows.push(each(row)?);
        Ok(())
    })?;
    Ok((rows, processed))
}

/// Runs a statement, calls `each` with each of its rows, and returns the number of rows processed. The
/// function is not generic: it would be compiled for each of two hundred callers, which took 2 MB of the
/// library.
fn run_each(sql: &str, args: &[Arg], how: How, each: &mut dyn FnMut(&Row) -> Result<()>) -> Result<u64> {
    // SAFETY: connect and finish pair up on every path that returns. An ERROR unwinds, and the abort of the
    // transaction closes SPI. Results are copied before SPI_finish frees them. The plan is not freed while it
    // runs, whatever the statement calls.
    pinned_settings::pinned(|| unsafe {
        if pg_sys::SPI_connect() != pg_sys::SPI_OK_CONNECT as i32 {
            return Err(Error::Internal("SPI_connect failed".into()));
        }
        let result = (|| {
            let in_parallel = how == How::ReadsInParallel;
            let plan = plan(sql, args.iter().map(Arg::type_oid).collect(), in_parallel)?;
            let (mut values, nulls) = datums(args);
            let read_only = how != How::Writes;
            let status =
                pg_sys::SPI_execute_plan(plan.ptr, values.as_mut_ptr(), nulls.as_ptr(), read_only, 0);
            if status < 0 {
                return Err(Error::Internal(format!("SPI status {status} of: {sql}")));
            }
            let processed = pg_sys::SPI_processed;
            result_rows(each)?;
            Ok(processed)
        })();
        pg_sys::SPI_finish();
        result
    })
}

/// The values of the arguments, and a flag for each that is NULL, in the form that SPI takes.
pub fn datums(args: &[Arg]) -> (Vec<pg_sys::Datum>, Vec<c_char>) {
    let datum = |arg: &Arg| match arg.datum() {
        Some(datum) => (datum, b' ' as c_char),
        None => (pg_sys::Datum::from(0usize), b'n' as c_char),
    };
    args.iter().map(datum).unzip()
}

/// Calls `each` with each of the rows, possibly none, that the last call of SPI has returned.
///
/// # Safety
///
/// Must be called between SPI_connect and SPI_finish.
pub(super) unsafe fn result_rows<T>(mut each: impl FnMut(&Row) -> Result<T>) -> Result<Vec<T>> {
    // SAFETY: the table has this number of rows, which live until SPI_finish.
    unsafe {
        let table = pg_sys::SPI_tuptable;
        let count = if table.is_null() { 0 } else { (*table).numvals as usize };
        let mut rows = Vec::with_capacity(count);
        for i in 0..count {
            rows.push(each(&Row::new(*(*table).vals.add(i), (*table).tupdesc))?);
        }
        Ok(rows)
    }
}

/// The rows of a statement that changes nothing, under the snapshot of the calling statement. This is for
/// STABLE functions and hot standbys.
pub fn read<T>(sql: &str, args: &[Arg], each: impl FnMut(&Row) -> Result<T>) -> Result<Vec<T>> {
    Ok(run(sql, args, How::Reads, each)?.0)
}

/// Does what [`read`] does for a statement that may read much. Parallel workers help if the planner expects
/// that to be quicker, as they do for the same statement in a session. The plan is made for these very
/// arguments, because the right plan or index depends on the rows that they match.
pub fn read_much<T>(sql: &str, args: &[Arg], each: impl FnMut(&Row) -> Result<T>) -> Result<Vec<T>> {
    let settings = [(c"plan_cache_mode", c"force_custom_plan")];
    setting::with(&settings, || Ok(run(sql, args, How::ReadsInParallel, each)?.0))
}

/// The first row of [`read`], if any.
pub fn read_one<T>(sql: &str, args: &[Arg], each: impl FnMut(&Row) -> Result<T>) -> Result<Option<T>> {
    Ok(read(sql, args, each)?.into_iter().next())
}

/// The one value of the one row of [`read`], or the default of its type if there is none or it is NULL.
pub fn read_value<T: FromColumn + Default>(sql: &str, args: &[Arg]) -> Result<T> {
    Ok(read_one(sql, args, Row::only::<Option<T>>)?.flatten().unwrap_or_default())
}

/// The rows of a statement that may change data, and that sees what this transaction did before.
pub fn write<T>(sql: &str, args: &[Arg], each: impl FnMut(&Row) -> Result<T>) -> Result<Vec<T>> {
    Ok(run(sql, args, How::Writes, each)?.0)
}

/// The first row of [`write`], if any.
pub fn write_one<T>(sql: &str, args: &[Arg], each: impl FnMut(&Row) -> Result<T>) -> Result<Option<T>> {
    Ok(write(sql, args, each)?.into_iter().next())
}

/// The one value of the one row of [`write`], as [`read_value`] returns it.
pub fn write_value<T: FromColumn + Default>(sql: &str, args: &[Arg]) -> Result<T> {
    Ok(write_one(sql, args, Row::only::<Option<T>>)?.flatten().unwrap_or_default())
}

/// Runs a statement and returns the number of rows affected.
pub fn execute(sql: &str, args: &[Arg]) -> Result<u64> {
    Ok(run(sql, args, How::Writes, |_| Ok(()))?.1)
}

/// Runs a utility statement (DDL) that takes no arguments, without keeping a plan.
pub fn execute_utility(sql: &str) -> Result<()> {
    let text = CString::new(sql).map_err(|e| Error::Internal(e.to_string()))?;
    // SAFETY: as in `run`.
    pinned_settings::pinned(|| unsafe {
        if pg_sys::SPI_connect() != pg_sys::SPI_OK_CONNECT as i32 {
            return Err(Error::Internal("SPI_connect failed".into()));
        }
        let status = extension_version::checked(|| pg_sys::SPI_execute(text.as_ptr(), false, 0));
        pg_sys::SPI_finish();
        if status < 0 {
            return Err(Error::Internal(format!("SPI status {status} of: {sql}")));
        }
        Ok(())
    })
}

/// An identifier, quoted if necessary.
pub fn quote(identifier: &str) -> String {
    pgrx::spi::quote_identifier(identifier)
}

/// A text as a literal, for statements that take no arguments.
pub fn literal(text: &str) -> String {
    pgrx::spi::quote_literal(text)
}
