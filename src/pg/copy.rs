//! Rows written as COPY FROM writes them: many to a page at once, by no plan. Constraints, foreign keys,
//! indexes and triggers are PostgreSQL's own. In a background process only, since neither privileges nor
//! policies are checked.
//!
//! Where a row cannot be written (its chunk has a vector by now, was deleted or is locked), the caller undoes
//! the transaction and does it again by statements that pass over such rows.
//!
//! PostgreSQL looks up by a query for each row what the row refers to: 30 to 40 µs for a chunk and its vector.
//! Writing without that would not be noticed: with a provider that answers within 50 ms, 20,000 chunks are
//! ready in the same time (the worker uses 1.17 times the CPU time), and a local model takes some 5 ms for a
//! chunk. With embedder `hash`, whose vectors cost nothing, they are ready in 0.8 s more (1.4 times the time),
//! and their index then takes 10 s (2 cores of an AMD EPYC, PostgreSQL 15).

use super::pinned_settings;
use kb_types::error::{Error, Result};
use pgrx::pg_sys;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_int, c_void};

/// Rows in the binary form of COPY, which PostgreSQL's manual describes. What a field must be is up to its
/// column: a wrong one is an ERROR.
pub struct Rows {
    columns: &'static [&'static CStr],
    bytes: Vec<u8>,
    count: usize,
}

impl Rows {
    /// Of these columns, in this order.
    pub fn of(columns: &'static [&'static CStr]) -> Rows {
        // The signature, no flags and no extension.
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

    /// A field that is received as such bytes: of type text, bytea or uuid.
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

    /// Of type jsonb, by its text.
    pub fn json(&mut self, text: &str) -> &mut Rows {
        self.size(1 + text.len());
        // Its version.
        self.bytes.push(1);
        self.bytes.extend(text.as_bytes());
        self
    }

    /// Of type uuid[], not empty.
    pub fn uuids(&mut self, ids: &[uuid::Uuid]) -> &mut Rows {
        self.size(20 + ids.len() * 20);
        // One dimension, no NULL, of this type, so many of them, numbered from 1.
        for number in [1, 0, u32::from(pg_sys::UUIDOID) as i32, ids.len() as i32, 1] {
            self.bytes.extend(number.to_be_bytes());
        }
        for id in ids {
            self.bytes(id.as_bytes());
        }
        self
    }

    /// Of pgvector's type vector.
    pub fn vector(&mut self, numbers: &[f32]) -> &mut Rows {
        self.numbers(numbers, |number| number.to_be_bytes())
    }

    /// Of pgvector's type halfvec.
    pub fn half_vector(&mut self, numbers: &[f32]) -> &mut Rows {
        self.numbers(numbers, |number| half::f16::from_f32(number).to_be_bytes())
    }

    fn numbers<const N: usize>(&mut self, numbers: &[f32], bytes: impl Fn(f32) -> [u8; N]) -> &mut Rows {
        self.size(4 + N * numbers.len());
        self.bytes.reserve(4 + N * numbers.len());
        // The dimension, and a number that is not used.
        self.bytes.extend((numbers.len() as i16).to_be_bytes());
        self.bytes.extend([0; 2]);
        numbers.iter().for_each(|number| self.bytes.extend_from_slice(&bytes(*number)));
        self
    }

    fn size(&mut self, size: usize) {
        self.bytes.extend((size as i32).to_be_bytes());
    }
}

/// What is read next by the COPY that runs.
struct Source {
    bytes: Vec<u8>,
    at: usize,
}

thread_local! {
    static SOURCE: RefCell<Source> = const { RefCell::new(Source { bytes: Vec::new(), at: 0 }) };
}

/// What is read, as long as this is there.
struct Reading;

impl Reading {
    fn begin(bytes: Vec<u8>) -> Reading {
        SOURCE.set(Source { bytes, at: 0 });
        Reading
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        SOURCE.set(Source { bytes: Vec::new(), at: 0 });
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

/// Writes rows to a table of kb. Returns an error, after which the transaction must be aborted, if a constraint
/// is violated or a wait for a lock takes too long.
pub fn write(table: &str, rows: Rows) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    // SAFETY: reads this process's variable.
    if unsafe { pg_sys::MyBackendType } != pg_sys::BackendType::B_BG_WORKER {
        return Err(Error::Internal(
            "a session must not write rows without its rights being looked at".into(),
        ));
    }
    let Rows { columns, mut bytes, count } = rows;
    // The end.
    bytes.extend((-1i16).to_be_bytes());
    let name = CString::new(table).map_err(|e| Error::Internal(e.to_string()))?;
    let _reading = Reading::begin(bytes);
    // SAFETY: names and lists are as BeginCopyFrom takes them, and live until it ends, as the relation does;
    // an ERROR ends the transaction, which releases all. What is read are this process's own bytes, checked
    // like those of any client.
    pinned_settings::pinned(|| unsafe {
        let schema = pg_sys::get_namespace_oid(c"kb".as_ptr(), true);
        let oid = pg_sys::get_relname_relid(name.as_ptr(), schema);
        if oid == pg_sys::InvalidOid {
            return Err(Error::Internal(format!("there is no table kb.{table}")));
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
        // What comes next in the transaction sees the rows.
        pg_sys::CommandCounterIncrement();
        match written == count as u64 {
            true => Ok(()),
            false => Err(Error::Internal(format!("a trigger of kb.{table} keeps rows from being written"))),
        }
    })
}
