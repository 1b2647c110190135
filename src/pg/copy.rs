//! Writes rows as COPY FROM does: many to a page at once, without a plan. Constraints, foreign keys, indexes
//! and triggers are PostgreSQL's own. For background processes only, because neither privileges nor policies
//! are checked.
//!
//! If a row cannot be written (its chunk has a vector by now, was deleted or is locked), the caller aborts
//! the transaction and repeats it by statements that skip such rows.
//!
//! For each row, PostgreSQL looks up by a query the rows to which it refers, which takes 30 to 40 µs for a
//! chunk and its vector. Nobody would notice if this were left out: with a provider that answers within 50
//! ms, 20,000 chunks are ready in the same time (the worker uses 1.17 times the CPU time), and a local model
//! takes about 5 ms for a chunk. With embedder `hash`, whose vectors cost nothing, they are ready 0.8 s later
//! (1.4 to 1.6 times the time), and their index then takes 10 s (2 cores of an AMD EPYC, PostgreSQL 15).

use super::pinned_settings;
use kb_types::error::{Error, Result};
use pgrx::pg_sys;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_int, c_void};

/// Rows in the binary format of COPY, which PostgreSQL's manual describes. The type of each column determines
/// its fields: a wrong field raises an ERROR.
pub struct Rows {
    columns: &'static [&'static CStr],
    bytes: Vec<u8>,
    count: usize,
}

impl Rows {
    /// Rows with these columns, in this order.
    pub fn of(columns: &'static [&'static CStr]) -> Rows {
        // The signature, no flags and no header extension.
        let mut bytes = b"PGCOPY\n\xff\r\n\0".to_vec();
        bytes.extend([0; 8]);
        Rows { columns, bytes, count: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Begins a row; a field for each column follows.
    pub fn row(&mut self) -> &mut Rows {
        self.count += 1;
        self.bytes.extend((self.columns.len() as i16).to_be_bytes());
        self
    }

    /// A field whose receive function reads these bytes: of type text, bytea or uuid.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Rows {
        self.size(bytes.len());
        self.bytes.extend(bytes);
        self
    }

    pub fn null(&mut self) -> &mut Rows {
        self.bytes.extend((-1i32).to_be_bytes());
        self
    }

    pub fn int(&mut self, number: i32) -> &mut Rows {
        self.bytes(&number.to_be_bytes())
    }

    pub fn long(&mut self, number: i64) -> &mut Rows {
        self.bytes(&number.to_be_bytes())
    }

    /// A field of type jsonb, from its text.
    pub fn json(&mut self, text: &str) -> &mut Rows {
        self.size(1 + text.len());
        // The version of the format.
        self.bytes.push(1);
        self.bytes.extend(text.as_bytes());
        self
    }

    /// A field of type uuid[], which must not be empty.
    pub fn uuids(&mut self, ids: &[uuid::Uuid]) -> &mut Rows {
        self.size(20 + ids.len() * 20);
        // One dimension, no NULL, the element type, the number of elements, and the lower bound 1.
        for number in [1, 0, u32::from(pg_sys::UUIDOID) as i32, ids.len() as i32, 1] {
            self.bytes.extend(number.to_be_bytes());
        }
        for id in ids {
            self.bytes(id.as_bytes());
        }
        self
    }

    /// A field of pgvector's type vector.
    pub fn vector(&mut self, numbers: &[f32]) -> &mut Rows {
        self.numbers(numbers, |number| number.to_be_bytes())
    }

    /// A field of pgvector's type halfvec.
    pub fn half_vector(&mut self, numbers: &[f32]) -> &mut Rows {
        self.numbers(numbers, |number| half::f16::from_f32(number).to_be_bytes())
    }

    fn numbers<const N: usize>(&mut self, numbers: &[f32], bytes: impl Fn(f32) -> [u8; N]) -> &mut Rows {
        self.size(4 + N * numbers.len());
        self.bytes.reserve(4 + N * numbers.len());
        // The dimension, and an unused number.
        self.bytes.extend((numbers.len() as i16).to_be_bytes());
        self.bytes.extend([0; 2]);
        numbers.iter().for_each(|number| self.bytes.extend_from_slice(&bytes(*number)));
        self
    }

    fn size(&mut self, size: usize) {
        self.bytes.extend((size as i32).to_be_bytes());
    }
}

/// The bytes that the running COPY reads next.
struct CopySource {
    bytes: Vec<u8>,
    at: usize,
}

thread_local! {
    static SOURCE: RefCell<CopySource> = const { RefCell::new(CopySource { bytes: Vec::new(), at: 0 }) };
}

/// While this exists, COPY reads these bytes.
struct Reading;

impl Reading {
    fn begin(bytes: Vec<u8>) -> Reading {
        SOURCE.set(CopySource { bytes, at: 0 });
        Reading
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        SOURCE.set(CopySource { bytes: Vec::new(), at: 0 });
    }
}

/// HAZARD: called by PostgreSQL's C code; nothing here can fail.
unsafe extern "C-unwind" fn read(out: *mut c_void, _least: c_int, most: c_int) -> c_int {
    SOURCE.with_borrow_mut(|source| {
        let left = source.bytes.get(source.at..).unwrap_or_default();
        let size = left.len().min(most.max(0) as usize);
        // SAFETY: there is room for `most` bytes.
        unsafe { std::ptr::copy_nonoverlapping(left.as_ptr(), out.cast(), size) };
        source.at += size;
        size as c_int
    })
}

/// Writes rows to a table of kb. Returns an error, after which the transaction must be aborted, if a
/// constraint is violated or a wait for a lock takes too long.
pub fn write(table: &str, rows: Rows) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    // SAFETY: reads this process's variable.
    if unsafe { pg_sys::MyBackendType } != pg_sys::BackendType::B_BG_WORKER {
        return Err(Error::Internal(
            "only background processes may write rows without a check of privileges".into(),
        ));
    }
    let Rows { columns, mut bytes, count } = rows;
    // The end marker.
    bytes.extend((-1i16).to_be_bytes());
    let name = CString::new(table).map_err(|e| Error::Internal(e.to_string()))?;
    let _reading = Reading::begin(bytes);
    // SAFETY: names and lists are in the form that BeginCopyFrom takes and live until it ends, as the
    // relation does; an ERROR ends the transaction, which releases everything. COPY reads this process's own
    // bytes, and checks them like those of any client.
    pinned_settings::pinned(|| unsafe {
        let schema = pg_sys::get_namespace_oid(c"kb".as_ptr(), true);
        let oid = pg_sys::get_relname_relid(name.as_ptr(), schema);
        if oid == pg_sys::InvalidOid {
            return Err(Error::Internal(format!("table kb.{table} does not exist")));
        }
        let lock = pg_sys::RowExclusiveLock as c_int;
        let relation = pg_sys::table_open(oid, lock);
        let state = pg_sys::make_parsestate(std::ptr::null_mut());
        pg_sys::addRangeTableEntryForRelation(state, relation, lock, std::ptr::null_mut(), false, false);
        let string = |text: &CStr| pg_sys::makeString(text.as_ptr().cast_mut());
        let names = columns
            .iter()
            .fold(std::ptr::null_mut(), |list, column| pg_sys::lappend(list, string(column).cast()));
        let format = pg_sys::makeDefElem(c"format".as_ptr().cast_mut(), string(c"binary").cast(), -1);
        let options = pg_sys::lappend(std::ptr::null_mut(), format.cast());
        let copy = pg_sys::BeginCopyFrom(
            state,
            relation,
            std::ptr::null_mut(),
            std::ptr::null(),
            false,
            Some(read),
            names,
            options,
        );
        let written = pg_sys::CopyFrom(copy);
        pg_sys::EndCopyFrom(copy);
        pg_sys::free_parsestate(state);
        pg_sys::table_close(relation, pg_sys::NoLock as c_int);
        // Later commands of the transaction see the rows.
        pg_sys::CommandCounterIncrement();
        match written == count as u64 {
            true => Ok(()),
            false => Err(Error::Internal(format!("a trigger of kb.{table} keeps rows from being written"))),
        }
    })
}
