//! Visits a column of many rows in the place where it is stored. The page of the next row is pinned before a
//! row is visited, so that the processor can fetch that page meanwhile.
//!
//! A question that is compared with 298,000 packed vectors takes 21 ms of CPU time in this way. It takes 25
//! ms if [`super::index_lookup`] reads the rows one after the other, and took 17 ms when this process also
//! remembered the buffer of each page and fetched PostgreSQL's description of that buffer. A gain of less
//! than 1.3 times does not justify that (2 cores of an AMD EPYC, PostgreSQL 15).

use super::index_lookup::{Key, TENANT, find, is_of, scanned};
use super::report::check_interrupts;
use kb_kernels::ahead::Ahead;
use pgrx::htup::heap_getattr_raw;
use pgrx::pg_sys;
use std::ffi::CStr;
use std::num::NonZeroUsize;

/// Calls `visit` with a column of type bytea of each row of these tenants that has these values in the first
/// columns of an index, in the order of the index, and with the page of the next row. The column must be
/// stored uncompressed and inline. Returns false if the index cannot be used, whatever was visited.
pub fn each(
    tenants: &[String],
    table: &CStr,
    index: &CStr,
    keys: &[Key],
    column: &CStr,
    mut visit: impl FnMut(&[u8], Ahead),
) -> bool {
    let Some((table, index)) = find(table).zip(find(index)) else { return false };
    let visited = scanned(table, index, keys, |relation, scan| {
        // SAFETY: the relation is open, and the scan has begun.
        unsafe {
            let by_index = (*scan).iscan;
            // A session that ignores system indexes ignores this one, too.
            if by_index.is_null() {
                return false;
            }
            let number = |column: &CStr| {
                let number = pg_sys::get_attnum((*relation).rd_id, column.as_ptr());
                NonZeroUsize::new(number.max(0) as usize)
            };
            let columns = [number(TENANT), number(column)];
            let mut places =
                places(by_index).into_iter().map(|place| RowPlace::pin(relation, place)).peekable();
            let mut is_plain = true;
            while let Some(place) = places.next() {
                check_interrupts();
                let next = places.peek().map_or(Ahead::nothing(), RowPlace::page);
                let values = place.row(relation, (*by_index).xs_snapshot, &columns);
                let value = values.and_then(|[tenant, value]| value.filter(|_| is_of(tenants, tenant)));
                is_plain &=
                    value.is_none_or(|value| plain(value).inspect(|value| visit(value, next)).is_some());
                place.release();
            }
            is_plain
        }
    });
    visited == Some(true)
}

/// Returns None if the value is compressed or out of line, which kb's are not.
///
/// SAFETY: the value must be a bytea that lives as long as its row.
unsafe fn plain<'a>(value: pg_sys::Datum) -> Option<&'a [u8]> {
    use pgrx::varlena::{varatt_is_1b, varatt_is_1b_e, varatt_is_4b_u, varlena_to_byte_slice};
    let stored: *mut pg_sys::varlena = value.cast_mut_ptr();
    // SAFETY: as above.
    unsafe {
        let is_plain = varatt_is_4b_u(stored) || varatt_is_1b(stored) && !varatt_is_1b_e(stored);
        is_plain.then(|| varlena_to_byte_slice(stored))
    }
}

/// The places of the rows that an index finds.
///
/// SAFETY: the scan must have begun.
unsafe fn places(scan: pg_sys::IndexScanDesc) -> Vec<pg_sys::ItemPointerData> {
    let next = || {
        // SAFETY: the place is valid until the next one is fetched.
        unsafe {
            pg_sys::index_getnext_tid(scan, pg_sys::ScanDirection::ForwardScanDirection).as_ref().copied()
        }
    };
    std::iter::from_fn(next).collect()
}

/// A place in a table, whose page stays in its buffer until it is released, or the transaction ends by an
/// ERROR.
struct RowPlace {
    buffer: pg_sys::Buffer,
    tid: pg_sys::ItemPointerData,
}

impl RowPlace {
    /// SAFETY: the relation must be open and have this place.
    unsafe fn pin(relation: pg_sys::Relation, tid: pg_sys::ItemPointerData) -> RowPlace {
        let (block, _) = pgrx::itemptr::item_pointer_get_both(tid);
        // SAFETY: as above.
        RowPlace { buffer: unsafe { pg_sys::ReadBuffer(relation, block) }, tid }
    }

    fn page(&self) -> Ahead {
        // SAFETY: the page is pinned.
        Ahead::at(unsafe { pg_sys::BufferGetBlock(self.buffer) }.cast(), pg_sys::BLCKSZ as usize)
    }

    fn release(self) {
        // SAFETY: `pin` has pinned it.
        unsafe { pg_sys::ReleaseBuffer(self.buffer) };
    }

    /// Columns of the version of a row that a snapshot sees, valid as long as the page is pinned. Returns
    /// None if the snapshot sees no version.
    ///
    /// SAFETY: the relation must be open, and the place must be one of it.
    unsafe fn row(
        &self,
        relation: pg_sys::Relation,
        snapshot: pg_sys::Snapshot,
        columns: &[Option<NonZeroUsize>; 2],
    ) -> Option<[Option<pg_sys::Datum>; 2]> {
        let (mut tid, mut tuple) = (self.tid, pg_sys::HeapTupleData::default());
        // SAFETY: the page is pinned. It is locked while versions are examined, and the bytes of a visible
        // version never change.
        unsafe {
            pg_sys::LockBuffer(self.buffer, pg_sys::BUFFER_LOCK_SHARE as i32);
            let is_seen = pg_sys::heap_hot_search_buffer(
                &mut tid,
                relation,
                self.buffer,
                snapshot,
                &mut tuple,
                std::ptr::null_mut(),
                true,
            );
            pg_sys::LockBuffer(self.buffer, pg_sys::BUFFER_LOCK_UNLOCK as i32);
            let value = |column: Option<NonZeroUsize>| {
                heap_getattr_raw(&raw const tuple as *mut _, column?, (*relation).rd_att)
            };
            is_seen.then(|| columns.map(value))
        }
    }
}
