//! A column of many rows, visited where it is stored. Of reading a page that is in memory already most is to look up where: this process
//! notes that, so that the processor can fetch a page while the one before it is visited.

use super::probe::{self, Key, TENANT, is_of, scanned};
use super::report::check_interrupts;
use crate::kernels::rounded::Ahead;
use pgrx::htup::heap_getattr_raw;
use pgrx::itemptr::item_pointer_get_both;
use pgrx::pg_sys;
use std::cell::RefCell;
use std::ffi::CStr;
use std::num::NonZeroUsize;

/// Calls `visit` with a column of type bytea of each row of these tenants that has these values in the first columns of an index, in the
/// order of the index, and with where the next one probably is. The rows are never updated, and the column is stored as it is. False:
/// this snapshot cannot say, whatever was visited.
pub fn each(
    tenants: &[String],
    table: &CStr,
    index: &CStr,
    keys: &[Key],
    column: &CStr,
    mut visit: impl FnMut(&[u8], Ahead),
) -> bool {
    let of = |values: &[Option<pg_sys::Datum>]| is_of(tenants, values[0]).then_some(values[1]).flatten();
    // SAFETY: reads this process's variable.
    if unsafe { pg_sys::XactIsoLevel } == pg_sys::XACT_SERIALIZABLE as i32 {
        // What is read has to be noted for each row.
        let visited = probe::each(table, index, keys, &[TENANT, column], |values| {
            check_interrupts();
            // SAFETY: a value of type bytea.
            of(values).inspect(|value| visit(unsafe { plain(*value) }, Ahead::nothing()));
            true
        });
        return visited.is_some();
    }
    let visited = scanned(table, index, keys, |relation, scan| {
        // SAFETY: the scan is by an index, and its relation is open.
        unsafe {
            let number = |column: &CStr| {
                let number = pg_sys::get_attnum((*relation).rd_id, column.as_ptr());
                NonZeroUsize::new(number.max(0) as usize)
            };
            let columns = [number(TENANT), number(column)];
            let places = places((*scan).iscan);
            for (i, (block, offset)) in places.iter().enumerate() {
                check_interrupts();
                let page = Page::pin(relation, *block);
                let row = page.row(relation, *block, *offset, (*(*scan).iscan).xs_snapshot, &columns);
                if let Row::Seen(values) = &row
                    && let Some(value) = of(values)
                {
                    let next = places.get(i + 1).map_or(Ahead::nothing(), |(block, _)| expected(*block));
                    visit(plain(value), next);
                }
                page.release();
                if let Row::Unknown = row {
                    return false;
                }
            }
            true
        }
    });
    visited == Some(true)
}

/// SAFETY: a value of type bytea that is not compressed, within its row.
unsafe fn plain<'a>(value: pg_sys::Datum) -> &'a [u8] {
    // SAFETY: as above.
    unsafe { pgrx::varlena::varlena_to_byte_slice(value.cast_mut_ptr()) }
}

/// Where the rows are that an index finds.
///
/// SAFETY: the scan has begun.
unsafe fn places(scan: pg_sys::IndexScanDesc) -> Vec<(pg_sys::BlockNumber, pg_sys::OffsetNumber)> {
    let next = || {
        // SAFETY: it is there until the next one is asked for.
        unsafe {
            let place = pg_sys::index_getnext_tid(scan, pg_sys::ScanDirection::ForwardScanDirection);
            (!place.is_null()).then(|| item_pointer_get_both(*place))
        }
    };
    std::iter::from_fn(next).collect()
}

/// What this transaction's snapshot has of a row.
enum Row {
    Seen([Option<pg_sys::Datum>; 2]),
    Unseen,
    /// It was updated, which kb never does: there may be another version of it that no index knows.
    Unknown,
}

/// A page of a table that stays where it is until it is released, or the transaction ends by an ERROR.
struct Page(pg_sys::Buffer);

impl Page {
    /// SAFETY: the relation is open, and has this page.
    unsafe fn pin(relation: pg_sys::Relation, block: pg_sys::BlockNumber) -> Page {
        // SAFETY: as above.
        Page(NOTED.with_borrow_mut(|noted| unsafe { noted.pin(relation, block) }))
    }

    fn release(self) {
        // SAFETY: it was pinned.
        unsafe { pg_sys::ReleaseBuffer(self.0) };
    }

    /// The values are there as long as the page is.
    ///
    /// SAFETY: the relation is open, and this is a page of it.
    unsafe fn row(
        &self,
        relation: pg_sys::Relation,
        block: pg_sys::BlockNumber,
        offset: pg_sys::OffsetNumber,
        snapshot: pg_sys::Snapshot,
        columns: &[Option<NonZeroUsize>; 2],
    ) -> Row {
        // SAFETY: what an index refers to is a line of the page; lines and whom rows are visible to change under the lock only, and
        // a visible row's bytes never.
        unsafe {
            pg_sys::LockBuffer(self.0, pg_sys::BUFFER_LOCK_SHARE as i32);
            let page = pg_sys::BufferGetPage(self.0);
            let line = pg_sys::PageGetItemId(page, offset);
            let mut row = Row::Unseen;
            if (*line).lp_flags() == pg_sys::LP_REDIRECT {
                row = Row::Unknown;
            } else if (*line).lp_flags() == pg_sys::LP_NORMAL {
                let mut tuple = pg_sys::HeapTupleData {
                    t_len: (*line).lp_len(),
                    t_tableOid: (*relation).rd_id,
                    t_data: pg_sys::PageGetItem(page, line).cast(),
                    ..Default::default()
                };
                pgrx::itemptr::item_pointer_set_all(&mut tuple.t_self, block, offset);
                if u32::from((*tuple.t_data).t_infomask2) & pg_sys::HEAP_HOT_UPDATED != 0 {
                    row = Row::Unknown;
                } else if pg_sys::HeapTupleSatisfiesVisibility(&mut tuple, snapshot, self.0) {
                    let value = |column: Option<NonZeroUsize>| {
                        heap_getattr_raw(&raw const tuple as *mut _, column?, (*relation).rd_att)
                    };
                    row = Row::Seen(columns.map(value));
                }
            }
            pg_sys::LockBuffer(self.0, pg_sys::BUFFER_LOCK_UNLOCK as i32);
            row
        }
    }
}

/// In which buffers pages were last, by their numbers: four bytes for each page of the one table that is read so. PostgreSQL looks
/// whether the buffer still has the page, so that it does no harm if it has not.
struct Noted {
    buffers: Vec<pg_sys::Buffer>,
    /// How many pages were pinned.
    pinned: usize,
}

/// PostgreSQL keeps those pages in memory that it is asked for; a page that is found where it was counts for nothing, so one in so
/// many is looked up.
const LOOKED_UP: usize = 17;

/// Where a page is if it is where it was last; what PostgreSQL has noted of that place is fetched now.
fn expected(block: pg_sys::BlockNumber) -> Ahead {
    match NOTED.with_borrow(|noted| noted.buffers.get(block as usize).copied()) {
        // SAFETY: there was such a buffer; nothing is read of it or its description.
        Some(buffer) if buffer > 0 => unsafe {
            let description = pg_sys::BufferDescriptors.wrapping_add(buffer as usize - 1);
            Ahead::at(description.cast(), size_of::<pg_sys::BufferDescPadded>()).fetch();
            Ahead::at(pg_sys::BufferGetBlock(buffer).cast(), pg_sys::BLCKSZ as usize)
        },
        _ => Ahead::nothing(),
    }
}

thread_local! {
    static NOTED: RefCell<Noted> = const { RefCell::new(Noted { buffers: Vec::new(), pinned: 0 }) };
}

impl Noted {
    /// SAFETY: the relation is open, and has this page.
    unsafe fn pin(&mut self, relation: pg_sys::Relation, block: pg_sys::BlockNumber) -> pg_sys::Buffer {
        let at = block as usize;
        self.pinned += 1;
        if self.buffers.len() <= at {
            self.buffers.resize(at + 1, pg_sys::InvalidBuffer as pg_sys::Buffer);
        }
        let noted = self.buffers[at];
        // SAFETY: as above, and there was such a buffer.
        unsafe {
            #[cfg(feature = "pg15")]
            let file = (*relation).rd_node;
            #[cfg(not(feature = "pg15"))]
            let file = (*relation).rd_locator;
            let is_noted = noted > 0 && !self.pinned.is_multiple_of(LOOKED_UP);
            if is_noted && pg_sys::ReadRecentBuffer(file, pg_sys::ForkNumber::MAIN_FORKNUM, block, noted) {
                return noted;
            }
            self.buffers[at] = pg_sys::ReadBuffer(relation, block);
        }
        self.buffers[at]
    }
}
