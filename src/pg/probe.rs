//! Counting the few rows of a table that have some values, by an index and without a statement: what nearly every question asks and
//! nearly always in vain costs a twentieth of starting a statement for it. Rows are counted as the current snapshot sees them and
//! whatever policies say, so no caller may be told anything of it but by a statement of its own.

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
}

impl Key<'_> {
    fn datum(self) -> Option<pg_sys::Datum> {
        match self {
            Key::Long(number) => number.into_datum(),
            Key::Bytes(bytes) => bytes.into_datum(),
            Key::Text(text) => text.into_datum(),
        }
    }

    /// The function behind `=`.
    fn equals(self) -> u32 {
        match self {
            Key::Long(_) => pg_sys::F_INT8EQ,
            Key::Bytes(_) => pg_sys::F_BYTEAEQ,
            Key::Text(_) => pg_sys::F_TEXTEQ,
        }
    }
}

/// How many rows of a table of kb have these values in the first columns of an index of its own, counted up to `most`. None: there is
/// no such table or index, or this snapshot cannot use it; a statement has to say.
pub fn count(table: &CStr, index: &CStr, keys: &[Key], most: usize) -> Option<usize> {
    counted(find(table)?, find(index)?, &equal(keys)?, None, most)
}

/// As [`count`], of rows of these tenants only (None: of all): how long a caller's question takes must not tell of the texts of others.
pub fn count_of(
    tenants: Option<&[String]>,
    table: &CStr,
    index: &CStr,
    keys: &[Key],
    most: usize,
) -> Option<usize> {
    counted(find(table)?, find(index)?, &equal(keys)?, tenants, most)
}

/// Whether a table of kb may have a row with at least this number in the first column, of type integer, of an index on it.
pub fn may_reach(table: &str, index: u32, least: i32) -> bool {
    let reached = || {
        let value = least.into_datum()?;
        let (strategy, function) = (pg_sys::BTGreaterEqualStrategyNumber, pg_sys::F_INT4GE);
        let table = find(&CString::new(table).ok()?)?;
        counted(table, pg_sys::Oid::from(index), &[Comparison { strategy, function, value }], None, 1)
    };
    reached() != Some(0)
}

/// What a column of an index is compared with: by which operator of a B-tree, which is which function.
struct Comparison {
    strategy: u32,
    function: u32,
    value: pg_sys::Datum,
}

fn equal(keys: &[Key]) -> Option<Vec<Comparison>> {
    let comparison = |key: &Key| {
        let strategy = pg_sys::BTEqualStrategyNumber;
        Some(Comparison { strategy, function: key.equals(), value: key.datum()? })
    };
    keys.iter().map(comparison).collect()
}

fn find(relation: &CStr) -> Option<pg_sys::Oid> {
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
    comparisons: &[Comparison],
    tenants: Option<&[String]>,
    most: usize,
) -> Option<usize> {
    let lock = pg_sys::AccessShareLock as i32;
    // SAFETY: both relations are open while they are scanned, and the keys live as long as the scan, which only counts rows. An ERROR
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
            && comparisons.len() <= (*form).indnkeyatts as usize;
        let found = serves.then(|| {
            let columns = (*form).indkey.values.as_slice((*form).indnkeyatts as usize);
            let key = |(i, Comparison { strategy, function, value }): (usize, &Comparison)| {
                let mut key = pg_sys::ScanKeyData::default();
                pg_sys::ScanKeyEntryInitialize(
                    &mut key,
                    0,
                    columns[i],
                    *strategy as pg_sys::StrategyNumber,
                    pg_sys::InvalidOid,
                    *(*index_relation).rd_indcollation.add(i),
                    pg_sys::Oid::from(*function),
                    *value,
                );
                key
            };
            let mut keys: Vec<pg_sys::ScanKeyData> = comparisons.iter().enumerate().map(key).collect();
            let snapshot = pg_sys::GetActiveSnapshot();
            let scan = pg_sys::systable_beginscan(
                relation,
                index,
                true,
                snapshot,
                keys.len() as i32,
                keys.as_mut_ptr(),
            );
            let tenant = NonZeroUsize::new(pg_sys::get_attnum(table, c"tenant_id".as_ptr()).max(0) as usize);
            let counts = |row| {
                let Some((tenants, tenant)) = tenants.zip(tenant) else { return true };
                let value = heap_getattr_raw(row, tenant, (*relation).rd_att);
                let value = value.and_then(|value| String::from_datum(value, false));
                value.is_some_and(|value| tenants.contains(&value))
            };
            let mut count = 0;
            while count < most {
                let row = pg_sys::systable_getnext(scan);
                if row.is_null() {
                    break;
                }
                count += usize::from(counts(row));
            }
            pg_sys::systable_endscan(scan);
            count
        });
        pg_sys::relation_close(index_relation, lock);
        pg_sys::table_close(relation, lock);
        found
    }
}
