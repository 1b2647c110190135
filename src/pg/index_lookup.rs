//! Looks up rows by the values in the first columns of an index, without a statement. Nearly every question
//! has to count a few rows and nearly always finds none; a scan of the index costs a twentieth of what it
//! costs to start a statement. The scan sees the rows of the current snapshot, whatever the policies say, so
//! its results must not be shown to a caller; a statement that runs under the policies has to produce them.

use pgrx::datum::{FromDatum, IntoDatum};
use pgrx::htup::heap_getattr_raw;
use pgrx::pg_sys;
use std::ffi::{CStr, CString};
use std::num::NonZeroUsize;

/// A value of one of the first columns of an index.
#[derive(Debug, Clone, Copy)]
pub enum Key<'a> {
    /// A bigint.
    Long(i64),
    /// A bytea.
    Bytes(&'a [u8]),
    /// A text.
    Text(&'a str),
    /// An integer of at least this value.
    AtLeast(i32),
}

impl Key<'_> {
    fn datum(self) -> Option<pg_sys::Datum> {
        match self {
            Key::Long(number) => number.into_datum(),
            Key::Bytes(bytes) => bytes.into_datum(),
            Key::Text(text) => text.into_datum(),
            Key::AtLeast(number) => number.into_datum(),
        }
    }

    /// The operator of the B-tree, and the function that implements it.
    fn operator(self) -> (u32, u32) {
        match self {
            Key::Long(_) => (pg_sys::BTEqualStrategyNumber, pg_sys::F_INT8EQ),
            Key::Bytes(_) => (pg_sys::BTEqualStrategyNumber, pg_sys::F_BYTEAEQ),
            Key::Text(_) => (pg_sys::BTEqualStrategyNumber, pg_sys::F_TEXTEQ),
            Key::AtLeast(_) => (pg_sys::BTGreaterEqualStrategyNumber, pg_sys::F_INT4GE),
        }
    }
}

/// The number of rows of a table of kb that have these values in the first columns of an index, counted up to
/// `most`. Returns None if the table or the index does not exist or this snapshot cannot use the index; then
/// the caller needs a statement.
pub fn count(table: &CStr, index: &CStr, keys: &[Key], most: usize) -> Option<usize> {
    counted(find(table)?, find(index)?, keys, None, most)
}

/// Does what [`count`] does for the rows of these tenants (None: of all): the time that a caller's question
/// takes must reveal nothing about the texts of others.
pub fn count_of(
    tenants: Option<&[String]>,
    table: &CStr,
    index: &CStr,
    keys: &[Key],
    most: usize,
) -> Option<usize> {
    counted(find(table)?, find(index)?, keys, tenants, most)
}

/// Whether a table of kb may have a row whose value in the first column of an index, which must be of type
/// integer, is at least this number.
pub fn may_reach(table: &str, index: u32, least: i32) -> bool {
    let reached = || {
        let table = find(&CString::new(table).ok()?)?;
        counted(table, pg_sys::Oid::from(index), &[Key::AtLeast(least)], None, 1)
    };
    reached() != Some(0)
}

/// The value of an integer column in the first row that [`count`] counts, or an inner None if there is no
/// such row. The outer None means what it means there.
pub fn number(table: &CStr, index: &CStr, keys: &[Key], column: &CStr) -> Option<Option<i32>> {
    let mut found = None;
    each(find(table)?, find(index)?, keys, &[column], |values| {
        found = values[0].and_then(read);
        false
    })?;
    Some(found)
}

/// The oid of a table or index of kb, or None if it does not exist.
pub fn find(relation: &CStr) -> Option<pg_sys::Oid> {
    // SAFETY: look-ups by name; what is missing is InvalidOid.
    let oid = unsafe {
        let schema = pg_sys::get_namespace_oid(c"kb".as_ptr(), true);
        pg_sys::get_relname_relid(relation.as_ptr(), schema)
    };
    (oid != pg_sys::InvalidOid).then_some(oid)
}

/// Only rows of `tenants` count, or all rows if this is None.
fn counted(
    table: pg_sys::Oid,
    index: pg_sys::Oid,
    keys: &[Key],
    tenants: Option<&[String]>,
    most: usize,
) -> Option<usize> {
    let mut count = 0;
    let columns: &[&CStr] = if tenants.is_some() { &[TENANT] } else { &[] };
    each(table, index, keys, columns, |values| {
        count += usize::from(tenants.is_none_or(|tenants| is_of(tenants, values[0])));
        count < most
    })?;
    Some(count)
}

/// The column that holds the tenant of a row.
pub const TENANT: &CStr = c"tenant_id";

pub fn is_of(tenants: &[String], value: Option<pg_sys::Datum>) -> bool {
    value.and_then(read::<&str>).is_some_and(|tenant| tenants.iter().any(|one| one == tenant))
}

/// A value of one of kb's own columns, whose type is known.
fn read<T: FromDatum>(value: pg_sys::Datum) -> Option<T> {
    // SAFETY: the value has this type and is not NULL.
    unsafe { T::from_datum(value, false) }
}

/// Visits the rows that have these values in the first columns of an index, in the order of the index, until
/// a visit returns false. A visit receives the named columns, with None for NULL and for a column that does
/// not exist. Returns None if the index cannot be used.
fn each(
    table: pg_sys::Oid,
    index: pg_sys::Oid,
    keys: &[Key],
    columns: &[&CStr],
    mut visit: impl FnMut(&[Option<pg_sys::Datum>]) -> bool,
) -> Option<()> {
    scanned(table, index, keys, |relation, scan| {
        // SAFETY: both relations are open, and a row stays valid until the next one is fetched.
        unsafe {
            let number = |column: &&CStr| pg_sys::get_attnum(table, column.as_ptr()).max(0) as usize;
            let numbers: Vec<Option<NonZeroUsize>> =
                columns.iter().map(|column| NonZeroUsize::new(number(column))).collect();
            let mut values = vec![None; numbers.len()];
            loop {
                let row = pg_sys::systable_getnext(scan);
                if row.is_null() {
                    break;
                }
                for (value, number) in values.iter_mut().zip(&numbers) {
                    *value = number.and_then(|number| heap_getattr_raw(row, number, (*relation).rd_att));
                }
                if !visit(&values) {
                    break;
                }
            }
        }
    })
}

/// Calls `work` with a table of kb and a scan of its rows that have these values in the first columns of an
/// index. Returns None if the index cannot be used.
pub fn scanned<T>(
    table: pg_sys::Oid,
    index: pg_sys::Oid,
    keys: &[Key],
    work: impl FnOnce(pg_sys::Relation, pg_sys::SysScanDesc) -> T,
) -> Option<T> {
    let values: Option<Vec<pg_sys::Datum>> = keys.iter().map(|key| key.datum()).collect();
    let values = values?;
    let lock = pg_sys::AccessShareLock as i32;
    // SAFETY: both relations are open while they are scanned, and the keys live as long as the scan, which
    // only reads rows. An ERROR releases everything with the transaction. An index has as many columns and
    // collations as it says.
    unsafe {
        let relation = pg_sys::table_open(table, lock);
        // The index has just been dropped if this is NULL.
        let index_relation = pg_sys::try_relation_open(index, lock);
        if index_relation.is_null() {
            pg_sys::table_close(relation, lock);
            return None;
        }
        let form = (*index_relation).rd_index;
        // An index with indcheckxmin lacks rows that older snapshots see.
        let serves = !form.is_null()
            && (*form).indrelid == table
            && (*form).indisvalid
            && !(*form).indcheckxmin
            && keys.len() <= (*form).indnkeyatts as usize;
        let made = serves.then(|| {
            let of_index = (*form).indkey.values.as_slice((*form).indnkeyatts as usize);
            let key = |(i, (key, value)): (usize, (&Key, &pg_sys::Datum))| {
                let (strategy, function) = key.operator();
                let mut key = pg_sys::ScanKeyData::default();
                pg_sys::ScanKeyEntryInitialize(
                    &mut key,
                    0,
                    of_index[i],
                    strategy as pg_sys::StrategyNumber,
                    pg_sys::InvalidOid,
                    *(*index_relation).rd_indcollation.add(i),
                    pg_sys::Oid::from(function),
                    *value,
                );
                key
            };
            let mut keys: Vec<pg_sys::ScanKeyData> = keys.iter().zip(&values).enumerate().map(key).collect();
            let scan = pg_sys::systable_beginscan(
                relation,
                index,
                true,
                pg_sys::GetActiveSnapshot(),
                keys.len() as i32,
                keys.as_mut_ptr(),
            );
            let made = work(relation, scan);
            pg_sys::systable_endscan(scan);
            made
        });
        pg_sys::relation_close(index_relation, lock);
        pg_sys::table_close(relation, lock);
        made
    }
}
