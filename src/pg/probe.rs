//! Counting the few rows of a table that have some values, by an index and without a statement: what nearly every question asks and
//! nearly always in vain costs a twentieth of starting a statement for it.

use pgrx::datum::IntoDatum;
use pgrx::pg_sys;
use std::ffi::CStr;

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

/// Columns of an index at most that are compared.
const MOST: usize = 4;

/// How many rows of a table of kb have these values in the first columns of an index of its own, counted up to `most`: as the current
/// snapshot sees them and whatever policies say, so that a caller is told nothing of it. None: there is no such table or index, or
/// this snapshot cannot use it; a statement has to say.
pub fn count(table: &CStr, index: &CStr, keys: &[Key], most: usize) -> Option<usize> {
    // SAFETY: relations are open while they are scanned, the keys live as long as the scan, and each row is only counted. An ERROR
    // releases all with the transaction. The columns of an index are as many as it says; those that are read are checked against it.
    unsafe {
        let schema = pg_sys::get_namespace_oid(c"kb".as_ptr(), true);
        let oid_of = |name: &CStr| {
            let oid = pg_sys::get_relname_relid(name.as_ptr(), schema);
            (oid != pg_sys::InvalidOid).then_some(oid)
        };
        let (table, index) = (oid_of(table)?, oid_of(index)?);
        let lock = pg_sys::AccessShareLock as i32;
        let relation = pg_sys::table_open(table, lock);
        let index_relation = pg_sys::index_open(index, lock);
        let form = (*index_relation).rd_index;
        // An index with indcheckxmin lacks rows of older snapshots.
        let serves = (*form).indrelid == table
            && (*form).indisvalid
            && !(*form).indcheckxmin
            && keys.len() <= MOST.min((*form).indnkeyatts as usize);
        let mut scan_keys = [pg_sys::ScanKeyData::default(); MOST];
        let columns = (*form).indkey.values.as_slice((*form).indnkeyatts as usize);
        let mut found = serves.then_some(0);
        for (i, (key, column)) in keys.iter().zip(columns).enumerate() {
            let Some(datum) = key.datum() else {
                found = None;
                break;
            };
            pg_sys::ScanKeyEntryInitialize(
                &mut scan_keys[i],
                0,
                *column,
                pg_sys::BTEqualStrategyNumber as pg_sys::StrategyNumber,
                pg_sys::InvalidOid,
                *(*index_relation).rd_indcollation.add(i),
                pg_sys::Oid::from(key.equals()),
                datum,
            );
        }
        if let Some(count) = &mut found {
            let scan = pg_sys::systable_beginscan(
                relation,
                index,
                true,
                pg_sys::GetActiveSnapshot(),
                keys.len() as i32,
                scan_keys.as_mut_ptr(),
            );
            while *count < most && !pg_sys::systable_getnext(scan).is_null() {
                *count += 1;
            }
            pg_sys::systable_endscan(scan);
        }
        pg_sys::index_close(index_relation, lock);
        pg_sys::table_close(relation, lock);
        found
    }
}
