//! Rows of a table that have some values, by an index and without a statement: to count the few that nearly every question asks for
//! and nearly always in vain costs a twentieth of starting a statement for it. Rows are those that the current snapshot sees, whatever
//! policies say, so no caller may be told anything of it but by a statement of its own.

use pgrx::datum::{FromDatum, IntoDatum};
use pgrx::htup::heap_getattr_raw;
use pgrx::pg_sys;
use std::ffi::{CStr, CString};
use std::num::NonZeroUsize;

/// A value of one of an index's first columns.
#[derive(Debug, Clone, Copy)]
pub enum Key<'a> {
    /// Of type bigint.
    Long(i64),
    /// Of type bytea.
    Bytes(&'a [u8]),
    /// Of type text.
    Text(&'a str),
    /// At least this, of type integer.
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

    /// The operator of a B-tree, and the function behind it.
    fn operator(self) -> (u32, u32) {
        match self {
            Key::Long(_) => (pg_sys::BTEqualStrategyNumber, pg_sys::F_INT8EQ),
            Key::Bytes(_) => (pg_sys::BTEqualStrategyNumber, pg_sys::F_BYTEAEQ),
            Key::Text(_) => (pg_sys::BTEqualStrategyNumber, pg_sys::F_TEXTEQ),
            Key::AtLeast(_) => (pg_sys::BTGreaterEqualStrategyNumber, pg_sys::F_INT4GE),
        }
    }
}

/// How many rows of a table of kb have these values in the first columns of an index of its own, counted up to `most`. None: there is
/// no such table or index, or this snapshot cannot use it; a statement has to say.
pub fn count(table: &CStr, index: &CStr, keys: &[Key], most: usize) -> Option<usize> {
    counted(find(table)?, find(index)?, keys, None, most)
}

/// As [`count`], of rows of these tenants only (None: of all): how long a caller's question takes must not tell of the texts of others.
pub fn count_of(
    tenants: Option<&[String]>,
    table: &CStr,
    index: &CStr,
    keys: &[Key],
    most: usize,
) -> Option<usize> {
    counted(find(table)?, find(index)?, keys, tenants, most)
}

/// Whether a table of kb may have a row with at least this number in the first column, of type integer, of an index on it.
pub fn may_reach(table: &str, index: u32, least: i32) -> bool {
    let reached = || {
        let table = find(&CString::new(table).ok()?)?;
        counted(table, pg_sys::Oid::from(index), &[Key::AtLeast(least)], None, 1)
    };
    reached() != Some(0)
}

/// A column of type integer of the first row that [`count`] counts; None within: there is no row. Also none where that cannot say.
pub fn number(table: &CStr, index: &CStr, keys: &[Key], column: &CStr) -> Option<Option<i32>> {
    let mut found = None;
    each(find(table)?, find(index)?, keys, &[column], |values| {
        found = values[0].and_then(read);
        false
    })?;
    Some(found)
}

/// A table or index of kb; None: there is none of that name.
pub fn find(relation: &CStr) -> Option<pg_sys::Oid> {
    // SAFETY: look-ups by name; what is missing is InvalidOid.
    let oid = unsafe {
        let schema = pg_sys::get_namespace_oid(c"kb".as_ptr(), true);
        pg_sys::get_relname_relid(relation.as_ptr(), schema)
    };
    (oid != pg_sys::InvalidOid).then_some(oid)
}

/// `tenants`: those whose rows count; None: all.
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

/// The column that says whose a row is.
pub const TENANT: &CStr = c"tenant_id";

pub fn is_of(tenants: &[String], value: Option<pg_sys::Datum>) -> bool {
    value.and_then(read::<&str>).is_some_and(|tenant| tenants.iter().any(|one| one == tenant))
}

/// A value of one of kb's own columns, whose type is known.
fn read<T: FromDatum>(value: pg_sys::Datum) -> Option<T> {
    // SAFETY: it is of this type, and no NULL.
    unsafe { T::from_datum(value, false) }
}

/// Visits columns (None: NULL, or there is none of that name) of the rows that have these values in the first columns of an index, in
/// its order, until a visit returns false. None: the index does not serve.
pub fn each(
    table: pg_sys::Oid,
    index: pg_sys::Oid,
    keys: &[Key],
    columns: &[&CStr],
    mut visit: impl FnMut(&[Option<pg_sys::Datum>]) -> bool,
) -> Option<()> {
    scanned(table, index, keys, |relation, scan| {
        // SAFETY: both are open; a row is there until the next one is asked for.
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

/// What `work` makes of a table of kb and a scan of its rows that have these values in the first columns of an index. None: the index
/// does not serve.
pub fn scanned<T>(
    table: pg_sys::Oid,
    index: pg_sys::Oid,
    keys: &[Key],
    work: impl FnOnce(pg_sys::Relation, pg_sys::SysScanDesc) -> T,
) -> Option<T> {
    let values: Option<Vec<pg_sys::Datum>> = keys.iter().map(|key| key.datum()).collect();
    let values = values?;
    let lock = pg_sys::AccessShareLock as i32;
    // SAFETY: both relations are open while they are scanned, and the keys live as long as the scan, which only reads rows. An ERROR
    // releases all with the transaction. An index has as many columns and collations as it says.
    unsafe {
        let relation = pg_sys::table_open(table, lock);
        // None: it has just been dropped.
        let index_relation = pg_sys::try_relation_open(index, lock);
        if index_relation.is_null() {
            pg_sys::table_close(relation, lock);
            return None;
        }
        let form = (*index_relation).rd_index;
        // One with indcheckxmin lacks what older snapshots see.
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
