//! What a trigger reads: the rows before and after a statement, from its transition tables, or a single row.

use super::condition::{Condition, Evaluation};
use super::pinned_settings;
use super::stored_values::{Storage, same};
use kb_types::error::{Error, Result};
use kb_types::row_key;
use pgrx::{PgTrigger, pg_sys};
use std::cell::UnsafeCell;
use std::ffi::{CStr, CString, c_char};

/// What a statement did to a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TriggerEvent {
    Insert,
    Update,
    Delete,
    Truncate,
}

/// One call of a trigger function. It must not outlive the call.
#[derive(Clone, Copy)]
pub struct Firing {
    data: *mut pg_sys::TriggerData,
}

/// Columns of the table, by their numbers.
pub struct TriggerColumns {
    pub key: Vec<i16>,
    pub tenant: Option<i16>,
    /// An update of a row that changes none of these columns is ignored. None: every update counts.
    pub watched: Option<Vec<i16>>,
}

/// What identifies a row: its tenant, if a column holds that, and the external_id that is made of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowId {
    /// None: no column holds the tenant. Empty: the column is NULL.
    pub tenant: Option<String>,
    pub external_id: String,
}

/// What became of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The row exists, and is new or differs from what it was.
    Changed(RowId),
    /// The row no longer exists, or the condition is no longer true of it.
    Gone(RowId),
    /// A part of its key is NULL, so the table no longer has such a key.
    Unknown,
}

impl Firing {
    /// Returns an error if the function was not called by an AFTER trigger.
    pub fn of(trigger: &PgTrigger<'_>) -> Result<Firing> {
        let data = trigger.trigger_data();
        let is_after = data.tg_event & pg_sys::TRIGGER_EVENT_TIMINGMASK == pg_sys::TRIGGER_EVENT_AFTER;
        if !is_after {
            return Err(Error::State {
                problem: "this function is called by the triggers that kb.attach_table makes".into(),
                hint: String::new(),
            });
        }
        Ok(Firing { data: std::ptr::from_ref(data).cast_mut() })
    }

    pub fn event(&self) -> TriggerEvent {
        // SAFETY: see `of`.
        match unsafe { (*self.data).tg_event } & pg_sys::TRIGGER_EVENT_OPMASK {
            pg_sys::TRIGGER_EVENT_INSERT => TriggerEvent::Insert,
            pg_sys::TRIGGER_EVENT_UPDATE => TriggerEvent::Update,
            pg_sys::TRIGGER_EVENT_DELETE => TriggerEvent::Delete,
            _ => TriggerEvent::Truncate,
        }
    }

    /// The oid of the trigger. Another trigger has another oid, even if it has the same name.
    pub fn trigger(&self) -> u32 {
        // SAFETY: see `of`.
        unsafe { (*(*self.data).tg_trigger).tgoid.to_u32() }
    }

    pub fn relation(&self) -> u32 {
        // SAFETY: see `of`; the table is open.
        unsafe { (*(*self.data).tg_relation).rd_id.to_u32() }
    }

    /// The role that owns the table now.
    pub fn owner(&self) -> String {
        // SAFETY: see `of`. The role exists, and its name is copied.
        unsafe {
            let owner = (*(*(*self.data).tg_relation).rd_rel).relowner;
            CStr::from_ptr(pg_sys::GetUserNameFromId(owner, false)).to_string_lossy().into_owned()
        }
    }

    /// The only argument of CREATE TRIGGER, which is a number.
    pub fn argument(&self) -> Result<i64> {
        // SAFETY: see `of`; there are tgnargs C strings.
        let text = unsafe {
            let trigger = &*(*self.data).tg_trigger;
            (trigger.tgnargs == 1).then(|| CStr::from_ptr(*trigger.tgargs).to_string_lossy().into_owned())
        };
        text.and_then(|text| text.parse().ok())
            .ok_or_else(|| Error::Argument { argument: "source_no", problem: "it is not a number".into() })
    }

    /// The number of a column, or None if the table has no column of this name.
    pub fn column(&self, name: &str) -> Option<i16> {
        column(self.relation(), name)
    }

    /// Whether settings of the session affect how a key is printed.
    pub fn prints_by_settings(&self, columns: &TriggerColumns) -> bool {
        const PLAIN: [pg_sys::Oid; 9] = [
            pg_sys::INT2OID,
            pg_sys::INT4OID,
            pg_sys::INT8OID,
            pg_sys::NUMERICOID,
            pg_sys::TEXTOID,
            pg_sys::VARCHAROID,
            pg_sys::BPCHAROID,
            pg_sys::UUIDOID,
            pg_sys::BOOLOID,
        ];
        let relation = pg_sys::Oid::from(self.relation());
        let mut columns = columns.key.iter().chain(&columns.tenant);
        // SAFETY: a look-up of a column of an open table.
        columns.any(|column| !PLAIN.contains(&unsafe { pg_sys::get_atttype(relation, *column) }))
    }

    /// Calls `found` for each row that the statement changed, in the order of the changes. If there is a
    /// condition, a row of which it is not true is treated as missing. The condition is evaluated with the
    /// rights of the current role and under the worker's settings, so that the functions that it calls find
    /// the same objects in every session.
    pub fn changes(
        &self,
        columns: &TriggerColumns,
        condition: Option<&Condition>,
        found: impl FnMut(Change) -> Result<()>,
    ) -> Result<()> {
        match condition {
            Some(_) => pinned_settings::pinned(|| self.each_change(columns, condition, found)),
            None => self.each_change(columns, None, found),
        }
    }

    /// The rows before and after the change, or None where the event has no such rows.
    fn rows(&self) -> (Option<RowReader>, Option<RowReader>) {
        // SAFETY: see `of`. Transition tables that the trigger asked for, and the slots of a row-level
        // trigger, live as long as the call.
        unsafe {
            let data = &*self.data;
            if data.tg_event & pg_sys::TRIGGER_EVENT_ROW == 0 {
                return (
                    RowReader::of(data.tg_oldtable, self.data),
                    RowReader::of(data.tg_newtable, self.data),
                );
            }
            match self.event() {
                TriggerEvent::Insert => (None, Some(RowReader::one(data.tg_trigslot))),
                TriggerEvent::Update => {
                    (Some(RowReader::one(data.tg_trigslot)), Some(RowReader::one(data.tg_newslot)))
                }
                _ => (Some(RowReader::one(data.tg_trigslot)), None),
            }
        }
    }

    fn each_change(
        &self,
        columns: &TriggerColumns,
        condition: Option<&Condition>,
        mut found: impl FnMut(Change) -> Result<()>,
    ) -> Result<()> {
        let types = Types::of(self.relation(), columns);
        let condition = condition.map(Evaluation::of);
        let (old, new) = self.rows();
        let is_there = |rows: &RowReader| {
            // SAFETY: the rows belong to the table for which the caller parsed the condition.
            condition.as_ref().is_none_or(|condition| unsafe { condition.is_true(rows.slot) })
        };
        match (old, new) {
            (Some(mut old), Some(mut new)) => loop {
                super::report::check_interrupts();
                match (old.next(), new.next()) {
                    (false, false) => return Ok(()),
                    (true, true) if types.same_id(&old, &new) => {
                        if types.same_watched(&old, &new) {
                            continue;
                        }
                        match (is_there(&old), is_there(&new)) {
                            (_, true) => found(types.changed(&new))?,
                            (true, false) => found(types.gone(&new))?,
                            (false, false) => {}
                        }
                    }
                    (is_old, is_new) => {
                        if is_old && is_there(&old) {
                            found(types.gone(&old))?;
                        }
                        if is_new && is_there(&new) {
                            found(types.changed(&new))?;
                        }
                    }
                }
            },
            (old, new) => {
                let is_new = new.is_some();
                let Some(mut rows) = old.or(new) else { return Ok(()) };
                while rows.next() {
                    super::report::check_interrupts();
                    if is_there(&rows) {
                        found(if is_new { types.changed(&rows) } else { types.gone(&rows) })?;
                    }
                }
                Ok(())
            }
        }
    }
}

/// The number of a column of a table, or None if the table has no column of this name.
pub fn column(relation: u32, name: &str) -> Option<i16> {
    let name = CString::new(name).ok()?;
    // SAFETY: a look-up by name.
    let number = unsafe { pg_sys::get_attnum(pg_sys::Oid::from(relation), name.as_ptr()) };
    (number > 0).then_some(number)
}

/// The rows of a transition table, one after the other, or a single row.
struct RowReader {
    from: From,
    slot: *mut pg_sys::TupleTableSlot,
}

enum From {
    Table(*mut pg_sys::Tuplestorestate, i32),
    /// The slot holds the row. The flag says whether it was read.
    Slot(bool),
}

impl RowReader {
    /// Returns None if the trigger has no such table.
    unsafe fn of(table: *mut pg_sys::Tuplestorestate, data: *mut pg_sys::TriggerData) -> Option<RowReader> {
        if table.is_null() {
            return None;
        }
        // SAFETY: other triggers read the same table, so this reads through a read pointer of its own, as the
        // executor does.
        unsafe {
            let pointer = pg_sys::tuplestore_alloc_read_pointer(table, pg_sys::EXEC_FLAG_REWIND as i32);
            pg_sys::tuplestore_select_read_pointer(table, pointer);
            pg_sys::tuplestore_rescan(table);
            let descriptor = (*(*data).tg_relation).rd_att;
            let slot = pg_sys::MakeSingleTupleTableSlot(descriptor, &pg_sys::TTSOpsMinimalTuple);
            Some(RowReader { from: From::Table(table, pointer), slot })
        }
    }

    /// Makes the only row the one that a slot holds.
    unsafe fn one(slot: *mut pg_sys::TupleTableSlot) -> RowReader {
        RowReader { from: From::Slot(false), slot }
    }

    /// Takes the next row. Returns false at the end.
    fn next(&mut self) -> bool {
        match &mut self.from {
            // SAFETY: the slot is of the table's kind of tuples.
            From::Table(table, pointer) => unsafe {
                pg_sys::tuplestore_select_read_pointer(*table, *pointer);
                pg_sys::tuplestore_gettupleslot(*table, true, false, self.slot)
            },
            From::Slot(was_taken) => !std::mem::replace(was_taken, true),
        }
    }

    /// The value of a column of the current row, or None for NULL.
    fn value(&self, column: i16) -> Option<pg_sys::Datum> {
        // SAFETY: the slot holds a row. Columns are numbered from 1, and those up to `column` are deformed
        // first.
        unsafe {
            if (*self.slot).tts_nvalid < column {
                pg_sys::slot_getsomeattrs_int(self.slot, i32::from(column));
            }
            let index = column as usize - 1;
            (!*(*self.slot).tts_isnull.add(index)).then(|| *(*self.slot).tts_values.add(index))
        }
    }
}

impl Drop for RowReader {
    fn drop(&mut self) {
        if matches!(self.from, From::Table(..)) && !std::thread::panicking() {
            // SAFETY: `of` made it, and nothing uses it any more.
            unsafe { pg_sys::ExecDropSingleTupleTableSlot(self.slot) };
        }
    }
}

/// A column that is printed.
struct PrintedColumn {
    column: i16,
    stored: Storage,
    /// The type's output function, looked up once for all rows.
    output: Box<UnsafeCell<pg_sys::FmgrInfo>>,
}

/// The columns, with the properties of their types.
struct Types {
    key: Vec<PrintedColumn>,
    tenant: Option<PrintedColumn>,
    watched: Option<Vec<(i16, Storage)>>,
}

impl Types {
    fn of(relation: u32, columns: &TriggerColumns) -> Types {
        let relation = pg_sys::Oid::from(relation);
        // SAFETY: look-ups of the columns of an open table.
        let stored = |column: i16| unsafe {
            let (mut length, mut is_by_value) = (0, false);
            let typ = pg_sys::get_atttype(relation, column);
            pg_sys::get_typlenbyval(typ, &mut length, &mut is_by_value);
            (typ, Storage { length, is_by_value })
        };
        let printed = |column: i16| {
            let (typ, stored) = stored(column);
            let (mut output, mut is_varlena) = (pg_sys::InvalidOid, false);
            let looked_up = Box::new(UnsafeCell::new(pg_sys::FmgrInfo::default()));
            // SAFETY: as above. The function's memory is that of the trigger's call, which outlives the
            // look-up.
            unsafe {
                pg_sys::getTypeOutputInfo(typ, &mut output, &mut is_varlena);
                pg_sys::fmgr_info(output, looked_up.get());
            }
            PrintedColumn { column, stored, output: looked_up }
        };
        Types {
            key: columns.key.iter().copied().map(printed).collect(),
            tenant: columns.tenant.map(printed),
            watched: columns
                .watched
                .as_ref()
                .map(|watched| watched.iter().map(|column| (*column, stored(*column).1)).collect()),
        }
    }

    fn same_id(&self, old: &RowReader, new: &RowReader) -> bool {
        let mut columns = self.key.iter().chain(&self.tenant);
        columns
            .all(|PrintedColumn { column, stored, .. }| same(*stored, old.value(*column), new.value(*column)))
    }

    fn same_watched(&self, old: &RowReader, new: &RowReader) -> bool {
        let is_same =
            |(column, stored): &(i16, Storage)| same(*stored, old.value(*column), new.value(*column));
        self.watched.as_ref().is_some_and(|watched| watched.iter().all(is_same))
    }

    fn changed(&self, rows: &RowReader) -> Change {
        self.id(rows).map_or(Change::Unknown, Change::Changed)
    }

    fn gone(&self, rows: &RowReader) -> Change {
        self.id(rows).map_or(Change::Unknown, Change::Gone)
    }

    /// Returns None if a part of the key is NULL.
    fn id(&self, rows: &RowReader) -> Option<RowId> {
        let tenant =
            self.tenant.as_ref().map(|tenant| tenant.print(rows, str::to_string).unwrap_or_default());
        let mut external_id = String::new();
        for (place, part) in self.key.iter().enumerate() {
            part.print(rows, |text| row_key::push(&mut external_id, text, place, self.key.len()))?;
        }
        Some(RowId { tenant, external_id })
    }
}

impl PrintedColumn {
    /// Reads the value in the form that its type's output function prints. Returns None for NULL.
    fn print<T>(&self, rows: &RowReader, read: impl FnOnce(&str) -> T) -> Option<T> {
        let value = rows.value(self.column)?;
        // SAFETY: the output function is that of the value's type. Its result is a C string, which is read
        // and freed. A database in UTF-8 has no other text.
        unsafe {
            let printed: *mut c_char = pg_sys::OutputFunctionCall(self.output.get(), value);
            let found = CStr::from_ptr(printed).to_str().ok().map(read);
            pg_sys::pfree(printed.cast());
            found
        }
    }
}
