//! A cache of small tables of kb, and of indexes, on which nearly every statement depends. A process keeps
//! what it has read of them until one of these tables, a role or a membership changes.

use super::report::report;
use super::row::Row;
use kb_types::error::Result;
use pgrx::{PgLogLevel, pg_sys};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::ffi::{CStr, CString};
use std::hash::Hash;
use std::thread::LocalKey;

/// The most keys of which something is kept.
const MOST: usize = 10_000;

thread_local! {
    /// Counts the changes.
    static EPOCH: Cell<u64> = const { Cell::new(0) };
    /// The tables that were read since the last change.
    static TABLES: RefCell<HashSet<u32>> = RefCell::default();
    static IS_WATCHING: Cell<bool> = const { Cell::new(false) };
    /// Whether a table was missing. Any table that is created later may be the missing one.
    static IS_MISSING: Cell<bool> = const { Cell::new(false) };
}

/// Values that were read from such a table, by key.
pub struct TableCache<K, V> {
    epoch: u64,
    values: HashMap<K, V>,
}

impl<K, V> Default for TableCache<K, V> {
    fn default() -> Self {
        TableCache { epoch: 0, values: HashMap::new() }
    }
}

/// The value of a key: the one that is kept, or else the result of `read`.
pub fn get<K: Eq + Hash + Clone, V: Clone>(
    kept: &'static LocalKey<RefCell<TableCache<K, V>>>,
    key: &K,
    read: impl FnOnce() -> V,
) -> V {
    let Ok(value) = try_get(kept, key, || Ok::<V, Infallible>(read()));
    value
}

/// Does the same where the read may fail. After a failure nothing is kept.
pub fn try_get<K: Eq + Hash + Clone, V: Clone, E>(
    kept: &'static LocalKey<RefCell<TableCache<K, V>>>,
    key: &K,
    read: impl FnOnce() -> Result<V, E>,
) -> Result<V, E> {
    watch();
    // The changes that others have committed count now, even in the middle of a transaction. SAFETY:
    // PostgreSQL does the same whenever it locks a table.
    unsafe { pg_sys::AcceptInvalidationMessages() };
    let epoch = EPOCH.get();
    let found = kept.with_borrow_mut(|kept| {
        if kept.epoch != epoch || kept.values.len() > MOST {
            *kept = TableCache { epoch, values: HashMap::new() };
        }
        kept.values.get(key).cloned()
    });
    if let Some(value) = found {
        return Ok(value);
    }
    let value = read()?;
    kept.with_borrow_mut(|kept| {
        // A value that was read while something changed is not kept.
        if EPOCH.get() == epoch && kept.epoch == epoch {
            kept.values.insert(key.clone(), value.clone());
        }
    });
    Ok(value)
}

/// Declares that what is read from now on depends on a table of kb or on its indexes, which are in the
/// catalogs.
pub fn depends_on(table: &str) {
    if let Ok(table) = CString::new(table) {
        find(&table);
    }
}

/// Visits the rows of a table of kb under the newest snapshot, whatever snapshot the transaction has. Visits
/// none if the table does not exist. `of` limits the visit to rows with this text in their first column, by
/// the index of this name.
pub fn scan(table: &CStr, of: Option<(&CStr, &str)>, mut visit: impl FnMut(&Row) -> Result<()>) {
    scan_while(table, of, |row| visit(row).map(|()| true));
}

/// Whether a table of kb has any row.
pub fn has_rows(table: &CStr) -> bool {
    let mut found = false;
    scan_while(table, None, |_| {
        found = true;
        Ok(false)
    });
    found
}

/// As [`scan`], until a visit returns false. An error of a visit is raised as an ERROR of PostgreSQL, because
/// callers such as policies cannot go on without the rows.
fn scan_while(table: &CStr, of: Option<(&CStr, &str)>, mut visit: impl FnMut(&Row) -> Result<bool>) {
    use pgrx::datum::IntoDatum;
    let Some(table) = find(table) else { return };
    let index = of.and_then(|(index, text)| Some((find(index)?, text.into_datum()?)));
    // SAFETY: the relation is open while it is scanned, and each tuple is valid until the next. A scan
    // without a snapshot uses the newest one, as scans of catalogs do.
    unsafe {
        let relation = pg_sys::table_open(table, pg_sys::AccessShareLock as i32);
        let mut key = pg_sys::ScanKeyData::default();
        if let Some((_, text)) = index {
            pg_sys::ScanKeyEntryInitialize(
                &mut key,
                0,
                1,
                pg_sys::BTEqualStrategyNumber as pg_sys::StrategyNumber,
                pg_sys::InvalidOid,
                pg_sys::DEFAULT_COLLATION_OID,
                pg_sys::Oid::from(pg_sys::F_TEXTEQ),
                text,
            );
        }
        let scan = pg_sys::systable_beginscan(
            relation,
            index.map_or(pg_sys::InvalidOid, |(index, _)| index),
            index.is_some(),
            std::ptr::null_mut(),
            i32::from(index.is_some()),
            &mut key,
        );
        loop {
            let tuple = pg_sys::systable_getnext(scan);
            if tuple.is_null() {
                break;
            }
            match visit(&Row::new(tuple, (*relation).rd_att)) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => report(error).report(PgLogLevel::ERROR),
            }
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(relation, pg_sys::AccessShareLock as i32);
    }
}

/// Makes all sessions read a table again once this transaction has committed, and this session after the
/// current command.
pub fn changed(table: u32) {
    // SAFETY: it looks the table up.
    unsafe { pg_sys::CacheInvalidateRelcacheByRelid(pg_sys::Oid::from(table)) };
}

fn find(relation: &CStr) -> Option<pg_sys::Oid> {
    // SAFETY: look-ups by name, which return InvalidOid for a missing object.
    let oid = unsafe {
        let schema = pg_sys::get_namespace_oid(c"kb".as_ptr(), true);
        if schema == pg_sys::InvalidOid {
            return None;
        }
        pg_sys::get_relname_relid(relation.as_ptr(), schema)
    };
    if oid == pg_sys::InvalidOid {
        IS_MISSING.set(true);
        return None;
    }
    if TABLES.with_borrow(HashSet::len) >= MOST {
        forget();
    }
    TABLES.with_borrow_mut(|tables| tables.insert(oid.to_u32()));
    Some(oid)
}

/// Registers for changes, once in each process.
fn watch() {
    if IS_WATCHING.replace(true) {
        return;
    }
    // SAFETY: the functions live as long as the process, because the library is never unloaded.
    unsafe {
        pg_sys::CacheRegisterRelcacheCallback(Some(on_relation), pg_sys::Datum::from(0));
        for cache in [pg_sys::SysCacheIdentifier::AUTHOID, pg_sys::SysCacheIdentifier::AUTHMEMROLEMEM] {
            pg_sys::CacheRegisterSyscacheCallback(cache as i32, Some(on_role), pg_sys::Datum::from(0));
        }
    }
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn on_relation(_argument: pg_sys::Datum, relation: pg_sys::Oid) {
    let concerns = relation == pg_sys::InvalidOid
        || IS_MISSING.get()
        || TABLES
            .with(|tables| tables.try_borrow().map_or(true, |tables| tables.contains(&relation.to_u32())));
    if concerns {
        forget();
    }
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn on_role(_argument: pg_sys::Datum, _cache: i32, _hash: u32) {
    forget();
}

/// Discards everything. Reading it again declares anew what it depends on.
fn forget() {
    EPOCH.set(EPOCH.get() + 1);
    IS_MISSING.set(false);
    TABLES.with(|tables| tables.try_borrow_mut().map(|mut tables| tables.clear()).unwrap_or_default());
}
