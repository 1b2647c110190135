//! Rows written as COPY FROM writes them: many to a page at once, by no plan. Constraints, indexes and
//! triggers are PostgreSQL's own. In a background process only, since neither rights nor policies are looked
//! at.
//!
//! PostgreSQL would look up and lock, by a query for each row, what the row refers to. The caller has locked
//! these rows by one statement, so triggers that would do just that are not fired ([`only_refers_to`]). Where
//! a row cannot be written (its chunk has a vector by now, was deleted or is locked), the transaction is
//! undone and done again by statements that pass over such rows.

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

/// As long as this is there, triggers that are not told to be fired always are not, as in a session that
/// applies what another server has checked. The setting session_replication_role would have all plans made
/// again; no plan is made or run here.
struct WithoutTriggers(c_int);

impl WithoutTriggers {
    fn begin() -> WithoutTriggers {
        let role = pg_sys::SESSION_REPLICATION_ROLE_REPLICA as c_int;
        // SAFETY: this process's variable, which nothing else refers to.
        WithoutTriggers(unsafe { std::ptr::replace(&raw mut pg_sys::SessionReplicationRole, role) })
    }
}

impl Drop for WithoutTriggers {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { pg_sys::SessionReplicationRole = self.0 };
    }
}

/// The trigger function of kb that looks up and locks a row as a foreign key does.
const LOOKS_UP: &CStr = c"_vector_written";

/// Whether all that an INSERT of this table fires looks up rows of these tables, for one foreign key to each,
/// or as one does.
///
/// SAFETY: the relation is open.
unsafe fn only_refers_to(relation: pg_sys::Relation, tables: &[pg_sys::Oid], schema: pg_sys::Oid) -> bool {
    // SAFETY: the relation's description is of so many triggers.
    let triggers = unsafe {
        match (*relation).trigdesc.as_ref() {
            Some(all) => std::slice::from_raw_parts(all.triggers, all.numtriggers.max(0) as usize),
            None => &[],
        }
    };
    let of_insert =
        |trigger: &&pg_sys::Trigger| u32::from(trigger.tgtype as u16) & pg_sys::TRIGGER_TYPE_INSERT != 0;
    let fired: Vec<_> = triggers.iter().filter(of_insert).collect();
    let looks_up = |trigger: &&pg_sys::Trigger| {
        let of_key = trigger.tgfoid.to_u32() == pg_sys::F_RI_FKEY_CHECK_INS;
        // SAFETY: look-ups by oid; the name is a new string, or none where the function is gone.
        let of_kb = || unsafe {
            let name = pg_sys::get_func_name(trigger.tgfoid);
            !name.is_null()
                && CStr::from_ptr(name) == LOOKS_UP
                && pg_sys::get_func_namespace(trigger.tgfoid) == schema
        };
        tables.contains(&trigger.tgconstrrelid) && (of_key || of_kb())
    };
    // One more foreign key to the same table may refer to other rows of it.
    fired.len() <= tables.len() && fired.iter().all(looks_up)
}

/// Writes rows to a table of kb. An error, after which the transaction is to be ended, where a constraint is
/// hurt or a lock is waited for too long. Of the tables that are `locked` the caller has locked each row that
/// these rows refer to, which need not be looked up and locked once for each.
pub fn write(table: &str, rows: Rows, locked: &[&CStr]) -> Result<()> {
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
        let locked: Vec<_> =
            locked.iter().map(|name| pg_sys::get_relname_relid(name.as_ptr(), schema)).collect();
        let without_triggers = only_refers_to(relation, &locked, schema).then(WithoutTriggers::begin);
        let written = pg_sys::CopyFrom(copy);
        drop(without_triggers);
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
