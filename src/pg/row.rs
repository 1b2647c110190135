//! A row of a result, or of a table of kb. Its columns are read by their names.

use super::json::Jsonb;
use kb_types::Json;
use kb_types::error::{Error, Result};
use pgrx::datum::{FromDatum, IntoDatum, TimestampWithTimeZone};
use pgrx::htup::heap_getattr_raw;
use pgrx::{JsonB, pg_sys};
use serde_json::Value;
use std::cell::Cell;
use std::ffi::CStr;
use std::num::NonZeroUsize;
use uuid::Uuid;

pub struct Row {
    tuple: pg_sys::HeapTuple,
    columns: pg_sys::TupleDesc,
    /// The column after the one that was read last. A look-up starts here, because columns are mostly read in
    /// their order.
    next: Cell<usize>,
}

/// A type as which a column can be read.
pub trait FromColumn: Sized {
    /// The type as which PostgreSQL gives the column.
    type Stored: FromDatum + IntoDatum;

    /// The value, or what is wrong with it.
    fn from_stored(stored: Self::Stored) -> Result<Self, String>;

    /// The value that stands for NULL, or None if the column must not be NULL.
    fn null() -> Option<Self> {
        None
    }
}

/// A struct that is read from a row. [`from_row`] declares one whose fields are all columns.
pub trait FromRow: Sized {
    const COLUMNS: &'static [&'static str];

    fn from_row(row: &Row) -> Result<Self>;

    /// The columns for a SELECT from the table that the statement calls `alias`.
    fn columns(alias: &str) -> String {
        let columns: Vec<String> = Self::COLUMNS.iter().map(|column| format!("{alias}.{column}")).collect();
        columns.join(", ")
    }
}

/// Declares a struct whose fields are the columns of the same names.
macro_rules! from_row {
    ($(#[$about:meta])* $vis:vis struct $name:ident {
        $($(#[$doc:meta])* $field_vis:vis $field:ident: $type:ty,)*
    }) => {
        $(#[$about])*
        $vis struct $name { $($(#[$doc])* $field_vis $field: $type,)* }

        impl $crate::pg::row::FromRow for $name {
            const COLUMNS: &'static [&'static str] = &[$(stringify!($field)),*];

            fn from_row(row: &$crate::pg::row::Row) -> kb_types::error::Result<Self> {
                Ok(Self { $($field: row.get(stringify!($field))?,)* })
            }
        }
    };
}
pub(crate) use from_row;

impl Row {
    /// # Safety
    /// The tuple is as the descriptor says, and both live as long as the row.
    pub(super) unsafe fn new(tuple: pg_sys::HeapTuple, columns: pg_sys::TupleDesc) -> Row {
        Row { tuple, columns, next: Cell::new(0) }
    }

    /// The value of a column. Returns an internal error if there is no column of this name, or if it has
    /// another type in PostgreSQL: such a value, read as `T`, could be an arbitrary pointer.
    pub fn get<T: FromColumn>(&self, column: impl Column) -> Result<T> {
        self.value(column.of(self)?)
    }

    /// The value of the only column of a result.
    pub fn only<T: FromColumn>(&self) -> Result<T> {
        match self.count() {
            1 => self.value(0),
            count => Err(Error::Internal(format!("a result has {count} columns, not one"))),
        }
    }

    fn value<T: FromColumn>(&self, number: usize) -> Result<T> {
        let problem = |problem: String| {
            let name = String::from_utf8_lossy(name_of(self.attribute(number)));
            Error::Internal(format!("column {name} of a result {problem}"))
        };
        let (oid, expected) = (self.attribute(number).atttypid, T::Stored::type_oid());
        if oid != expected {
            return Err(problem(format!("has type {}, not {}", oid.to_u32(), expected.to_u32())));
        }
        let Some(datum) = self.datum(number) else {
            return T::null().ok_or_else(|| problem("is NULL".into()));
        };
        // SAFETY: the datum is of the type's own type in PostgreSQL, and the type copies what it needs.
        let stored = unsafe { T::Stored::from_polymorphic_datum(datum, false, oid) };
        let stored = stored.ok_or_else(|| problem("cannot be read".into()))?;
        T::from_stored(stored).map_err(|invalid| problem(format!("is invalid: {invalid}")))
    }

    /// The value of a column of any type, or None if it is NULL.
    pub(super) fn raw(&self, column: &str) -> Result<Option<pg_sys::Datum>> {
        Ok(self.datum(self.number(column)?))
    }

    /// The text in a column of any type of texts ([`is_text`]).
    pub fn text(&self, number: usize) -> Result<Option<String>> {
        let type_oid = self.attribute(number).atttypid;
        if !is_text(type_oid) {
            return Err(Error::Internal(format!("column {number} has type {}, no text", type_oid.to_u32())));
        }
        // SAFETY: the values of these types are all stored as texts are.
        Ok(self.datum(number).and_then(|datum| unsafe { String::from_datum(datum, false) }))
    }

    /// The microseconds since 2000 of a column of a type of timestamps ([`is_timestamp`]).
    pub fn timestamp(&self, number: usize) -> Result<Option<i64>> {
        let type_oid = self.attribute(number).atttypid;
        match is_timestamp(type_oid) {
            true => Ok(self.datum(number).map(|datum| datum.value() as i64)),
            false => Err(Error::Internal(format!("column {number} has type {}, no time", type_oid.to_u32()))),
        }
    }

    /// The size in bytes of the value of a column of variable length, without reading it; None: it is NULL.
    pub fn raw_size(&self, number: usize) -> Option<usize> {
        if self.attribute(number).attlen != -1 {
            return None;
        }
        // SAFETY: a type of variable length.
        self.datum(number)
            .map(|datum| unsafe { pg_sys::toast_raw_datum_size(datum) } as usize - pg_sys::VARHDRSZ)
    }

    /// The size in bytes of the row, without what is stored apart.
    pub fn size(&self) -> usize {
        // SAFETY: the tuple lives as long as the row.
        unsafe { (*self.tuple).t_len as usize }
    }

    fn datum(&self, number: usize) -> Option<pg_sys::Datum> {
        // SAFETY: the tuple has as many columns as its descriptor, and both live as long as the row.
        unsafe { heap_getattr_raw(self.tuple, NonZeroUsize::MIN.saturating_add(number), self.columns) }
    }

    fn number(&self, column: &str) -> Result<usize> {
        let (next, count) = (self.next.get(), self.count());
        let is_it = |number: &usize| name_of(self.attribute(*number)) == column.as_bytes();
        let Some(number) = (next..count).chain(0..next.min(count)).find(is_it) else {
            let names: Vec<&[u8]> = (0..count).map(|number| name_of(self.attribute(number))).collect();
            let names = names.join(&b", "[..]);
            let names = String::from_utf8_lossy(&names);
            return Err(Error::Internal(format!("a result has no column {column}, but {names}")));
        };
        if cfg!(debug_assertions) && (0..count).filter(is_it).count() > 1 {
            return Err(Error::Internal(format!("a result has several columns {column}")));
        }
        self.next.set(number + 1);
        Ok(number)
    }

    fn count(&self) -> usize {
        // SAFETY: the descriptor lives as long as the row.
        unsafe { (*self.columns).natts as usize }
    }

    fn attribute(&self, number: usize) -> &pg_sys::FormData_pg_attribute {
        // SAFETY: the descriptor lives as long as the row and has this column.
        unsafe { attribute_of(self.columns, number) }
    }
}

/// # Safety
/// The descriptor lives as long as the result is used, and has this column.
unsafe fn attribute_of<'a>(columns: pg_sys::TupleDesc, number: usize) -> &'a pg_sys::FormData_pg_attribute {
    // SAFETY: in PostgreSQL 18 the full descriptions follow the compact ones, as its function TupleDescAttr
    // says.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        let first: *const pg_sys::FormData_pg_attribute = (*columns).attrs.as_ptr();
        #[cfg(feature = "pg18")]
        let first: *const pg_sys::FormData_pg_attribute =
            (*columns).compact_attrs.as_ptr().add((*columns).natts as usize).cast();
        &*first.add(number)
    }
}

/// The names and types of columns.
///
/// # Safety
/// The descriptor is valid.
pub(super) unsafe fn columns_of(columns: pg_sys::TupleDesc) -> Vec<(String, pg_sys::Oid)> {
    // SAFETY: the caller guarantees it.
    let count = unsafe { (*columns).natts as usize };
    let column = |number| {
        // SAFETY: as above.
        let attribute = unsafe { attribute_of(columns, number) };
        (String::from_utf8_lossy(name_of(attribute)).into_owned(), attribute.atttypid)
    };
    (0..count).map(column).collect()
}

/// Whether values of a type are stored as texts are.
pub fn is_text(type_oid: pg_sys::Oid) -> bool {
    [pg_sys::TEXTOID, pg_sys::VARCHAROID, pg_sys::BPCHAROID].contains(&type_oid)
}

/// Whether values of a type are microseconds since 2000.
pub fn is_timestamp(type_oid: pg_sys::Oid) -> bool {
    [pg_sys::TIMESTAMPTZOID, pg_sys::TIMESTAMPOID].contains(&type_oid)
}

fn name_of(attribute: &pg_sys::FormData_pg_attribute) -> &[u8] {
    // SAFETY: a name ends with a NUL byte.
    unsafe { CStr::from_ptr(attribute.attname.data.as_ptr()) }.to_bytes()
}

macro_rules! as_stored {
    ($($type:ty),*) => {
        $(impl FromColumn for $type {
            type Stored = $type;

            fn from_stored(stored: $type) -> Result<Self, String> {
                Ok(stored)
            }
        })*
    };
}

/// Where a column is: its name, or its number.
pub trait Column {
    fn of(self, row: &Row) -> Result<usize>;
}

impl Column for usize {
    fn of(self, _row: &Row) -> Result<usize> {
        Ok(self)
    }
}

impl Column for &str {
    fn of(self, row: &Row) -> Result<usize> {
        row.number(self)
    }
}

as_stored!(bool, i32, i64, f64, String, TimestampWithTimeZone);
as_stored!(Vec<u8>, Vec<f32>, Vec<i32>, Vec<i64>, Vec<String>, Vec<Option<String>>);

impl<T: FromColumn> FromColumn for Option<T> {
    type Stored = T::Stored;

    fn from_stored(stored: T::Stored) -> Result<Self, String> {
        T::from_stored(stored).map(Some)
    }

    fn null() -> Option<Self> {
        Some(None)
    }
}

/// An OID, which statements cast to bigint.
impl FromColumn for u32 {
    type Stored = i64;

    fn from_stored(stored: i64) -> Result<Self, String> {
        u32::try_from(stored).map_err(|e| e.to_string())
    }
}

/// A count or a position of type integer.
impl FromColumn for usize {
    type Stored = i32;

    fn from_stored(stored: i32) -> Result<Self, String> {
        usize::try_from(stored).map_err(|e| e.to_string())
    }
}

impl FromColumn for Uuid {
    type Stored = pgrx::Uuid;

    fn from_stored(stored: pgrx::Uuid) -> Result<Self, String> {
        Ok(super::uuid::from_pg(stored))
    }
}

/// NULL is read as an empty array.
impl FromColumn for Vec<Uuid> {
    type Stored = Vec<pgrx::Uuid>;

    fn from_stored(stored: Vec<pgrx::Uuid>) -> Result<Self, String> {
        Ok(stored.into_iter().map(super::uuid::from_pg).collect())
    }

    fn null() -> Option<Self> {
        Some(Vec::new())
    }
}

/// JSON that is only stored or returned.
impl FromColumn for Json {
    type Stored = Jsonb;

    fn from_stored(stored: Jsonb) -> Result<Self, String> {
        Ok(stored.0)
    }
}

/// JSON that is parsed. NULL is read as JSON's `null`.
impl FromColumn for Value {
    type Stored = JsonB;

    fn from_stored(stored: JsonB) -> Result<Self, String> {
        Ok(stored.0)
    }

    fn null() -> Option<Self> {
        Some(Value::Null)
    }
}
