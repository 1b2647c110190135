//! A column of many rows, visited where it is stored. Of reading a page that is in memory already most is to
//! look up where: this process notes that, so that the processor can fetch a page while the one before it is
//! visited.

use super::probe::{self, Key, TENANT, find, is_of, scanned};
use super::report::check_interrupts;
use kb_kernels::ahead::Ahead;
use pgrx::htup::heap_getattr_raw;
use pgrx::itemptr::item_pointer_get_both;
use pgrx::pg_sys;
use std::cell::RefCell;
use std::ffi::CStr;
use std::num::NonZeroUsize;

/// Calls `visit` with a column of type bytea of each row of these tenants that has these values in the first
/// columns of an index, in the order of the index, and with where the next one probably is. The rows are
/// never updated, and the column is stored as it is. False: this cannot say, whatever was visited.
pub fn each(
    tenants: &[String],
    table: &CStr,
    index: &CStr,
    keys: &[Key],
    column: &CStr,
    mut visit: impl FnMut(&[u8], Ahead),
) -> bool {
    let Some((table, index)) = find(table).zip(find(index)) else { return false };
    let of = |values: &[Option<pg_sys::Datum>]| is_of(tenants, values[0]).then_some(values[1]).flatten();
    // SAFETY: reads this process's variable.
    if unsafe { pg_sys::XactIsoLevel } == pg_sys::XACT_SERIALIZABLE as i32 {
        // What is read has to be noted for each row.
        let mut is_plain = true;
        let visited = probe::each(table, index, keys, &[TENANT, column], |values| {
            check_interrupts();
            let Some(value) = of(values) else { return true };
            // SAFETY: a value of type bytea.
            let plain = unsafe { plain(value) };
            plain.inspect(|value| visit(value, Ahead::nothing()));
            is_plain &= plain.is_some();
            is_plain
        });
        return visited.is_some() && is_plain;
    }
    let visited = scanned(table, index, keys, |relation, scan| {
        // SAFETY: the relation is open, and the scan has begun.
        unsafe {
            let by_index = (*scan).iscan;
            // Where the session ignores system indexes, it is taken for one.
            if by_index.is_null() {
                return false;
            }
            NOTED.with_borrow_mut(|noted| noted.turn = noted.turn.wrapping_add(1));
            let number = |column: &CStr| {
                let number = pg_sys::get_attnum((*relation).rd_id, column.as_ptr());
                NonZeroUsize::new(number.max(0) as usize)
            };
            let columns = [number(TENANT), number(column)];
            let places = places(by_index);
            for (i, (block, offset)) in places.iter().enumerate() {
                check_interrupts();
                let page = Page::pin(relation, *block);
                let row = page.row(relation, *block, *offset, (*by_index).xs_snapshot, &columns);
                let is_sure = match &row {
                    Row::Unknown => false,
                    Row::Unseen => true,
                    Row::Seen(values) => of(values).is_none_or(|value| {
                        let next = places.get(i + 1).map_or(Ahead::nothing(), |(block, _)| expected(*block));
                        plain(value).inspect(|value| visit(value, next)).is_some()
                    }),
                };
                page.release();
                if !is_sure {
                    return false;
                }
            }
            true
        }
    });
    visited == Some(true)
}

/// None: it is compressed or not within its row, which kb's are not.
///
/// SAFETY: a value of type bytea, which is there as long as its row.
unsafe fn plain<'a>(value: pg_sys::Datum) -> Option<&'a [u8]> {
    use pgrx::varlena::{varatt_is_1b, varatt_is_1b_e, varatt_is_4b_u, varlena_to_byte_slice};
    let stored: *mut pg_sys::varlena = value.cast_mut_ptr();
    // SAFETY: as above.
    unsafe {
        let is_plain = varatt_is_4b_u(stored) || varatt_is_1b(stored) && !varatt_is_1b_e(stored);
        is_plain.then(|| varlena_to_byte_slice(stored))
    }
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
        // SAFETY: only lines of the page are looked at; these and whom rows are visible to change under the
        // lock only, and a visible row's bytes never.
        unsafe {
            pg_sys::LockBuffer(self.0, pg_sys::BUFFER_LOCK_SHARE as i32);
            let page = pg_sys::BufferGetPage(self.0);
            let line = line(page, offset);
            let mut row = Row::Unseen;
            if line.is_some_and(|line| line.lp_flags() == pg_sys::LP_REDIRECT) {
                row = Row::Unknown;
            } else if let Some(line) = line.filter(|line| line.lp_flags() == pg_sys::LP_NORMAL) {
                let mut tuple = pg_sys::HeapTupleData {
                    t_len: line.lp_len(),
                    t_tableOid: (*relation).rd_id,
                    t_data: page.cast::<u8>().add(line.lp_off() as usize).cast(),
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

/// A line of a page. None: there is none any more, since the row was dead and VACUUM has cut its line off.
///
/// SAFETY: the page is pinned and locked.
unsafe fn line(page: pg_sys::Page, offset: pg_sys::OffsetNumber) -> Option<pg_sys::ItemIdData> {
    let header = page.cast::<pg_sys::PageHeaderData>();
    // SAFETY: as above; lines lie between the header and pd_lower.
    unsafe {
        let start = std::mem::offset_of!(pg_sys::PageHeaderData, pd_linp);
        let count = usize::from((*header).pd_lower).saturating_sub(start) / size_of::<pg_sys::ItemIdData>();
        (*header).pd_linp.as_slice(count).get(usize::from(offset).checked_sub(1)?).copied()
    }
}

/// In which buffers pages were last, by their numbers: four bytes for each page of the one table that is read
/// so. PostgreSQL looks whether the buffer still has the page, so that it does no harm if it has not.
struct Noted {
    buffers: Vec<pg_sys::Buffer>,
    /// How often rows were visited.
    turn: usize,
}

/// PostgreSQL keeps those pages in memory that it is asked for; a page that is found where it was counts for
/// nothing, so one in so many is looked up, each time others.
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
    static NOTED: RefCell<Noted> = const { RefCell::new(Noted { buffers: Vec::new(), turn: 0 }) };
}

impl Noted {
    /// SAFETY: the relation is open, and has this page.
    unsafe fn pin(&mut self, relation: pg_sys::Relation, block: pg_sys::BlockNumber) -> pg_sys::Buffer {
        let at = block as usize;
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
            let is_noted = noted > 0 && at % LOOKED_UP != self.turn % LOOKED_UP;
            if is_noted && pg_sys::ReadRecentBuffer(file, pg_sys::ForkNumber::MAIN_FORKNUM, block, noted) {
                return noted;
            }
            self.buffers[at] = pg_sys::ReadBuffer(relation, block);
        }
        self.buffers[at]
    }
}
