//! kb._rows_changed: the trigger of an attached table records which rows a statement changed. It reads
//! nothing else of them, and neither a fault of kb nor one of a condition that a user wrote makes the
//! statement fail.
//!
//! Triggers append keys to kb.changes, many in one row, without an upsert, a foreign key or anything else
//! that another session could have locked. A user's condition is evaluated only if a column that it reads may
//! have changed. A row of which it is no longer true counts as deleted. The statement deletes nothing of kb;
//! the worker does.
//!
//! **Invariant:** a user's statement never fails because of kb, and its trigger waits for no lock. If the
//! effect of a change cannot be determined (a condition fails, a column is gone), the row is hidden until the
//! worker has looked.

use crate::pg::condition::Condition;
use crate::pg::role::{as_owner, as_role_of_name};
use crate::pg::setting;
use crate::pg::subtransaction::{in_subtransaction, is_cancel};
use crate::pg::trigger::{Change, Firing, RowId, TriggerColumns, TriggerEvent};
use crate::pg::wake;
use crate::tables::partitions;
use crate::tables::sql::changes;
use crate::tables::sql::changes::What;
use crate::tables::sql::sources::table;
use crate::tables::sql::sources::table::MemberTable;
use crate::tables::sql::sources::{PRINTED, Source, catalog};
use kb_types::error::{Error, Result};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// The number of keys that are recorded together.
const BATCH: usize = 1000;

thread_local! {
    /// Sources by the oids of their triggers. A source that is altered gets new triggers.
    static SOURCES: RefCell<HashMap<u32, Rc<Source>>> = RefCell::default();
}

/// Records what the statement did.
pub fn rows_changed(firing: &Firing) -> Result<()> {
    let Some(source) = source(firing)? else { return Ok(()) };
    let mut changes = ChangeRecorder::new(&source);
    if firing.event() == TriggerEvent::Truncate {
        return truncated(firing, &source, &mut changes);
    }
    let Some(columns) = columns(firing, &source) else {
        // A column of the key is gone. The worker finds out which, and reports it.
        return changes.note(What::Changed);
    };
    let printed = PrintSettings(firing.prints_by_settings(&columns));
    let Some(condition) = &source.config.published_when else {
        printed.run(|| firing.changes(&columns, None, |change| changes.add(change)))?;
        return changes.flush();
    };
    let with_condition = in_subtransaction(|| {
        if firing.owner() != source.role_name {
            return Err(Error::Internal("the table has another owner".into()));
        }
        as_role_of_name(&source.role_name, || {
            let condition = Condition::parse_printed(firing.relation(), condition)?;
            printed.run(|| firing.changes(&columns, Some(&condition), |change| changes.add(change)))
        })
    });
    match with_condition {
        Err(error) if is_cancel(&error) => Err(error),
        Err(_) => {
            // It is unknown whether the rows are published, so they are hidden until the worker has looked.
            let mut changes = ChangeRecorder::new(&source);
            printed.run(|| firing.changes(&columns, None, |change| changes.add_gone(change)))?;
            changes.flush()
        }
        // This is outside the subtransaction, which then needs no transaction id of its own: a statement may
        // call this for each row.
        Ok(()) => changes.flush(),
    }
}

/// Handles TRUNCATE of a partition, which fires the partition's own trigger, also if the statement names its
/// parent. Documents of the partition are hidden until the worker has looked for their rows.
fn truncated(firing: &Firing, source: &Source, changes: &mut ChangeRecorder) -> Result<()> {
    if firing.relation() == source.relation {
        return changes.note(What::Truncated);
    }
    as_owner(|| {
        let oids: Vec<i64> = table::members(firing.relation())?.iter().map(MemberTable::oid).collect();
        partitions::note_gone(source.source_no, &oids)
    })?;
    wake::at_commit(source.kb_no);
    Ok(())
}

/// The source of the trigger. Returns None if the source no longer exists, or belongs to another table.
fn source(firing: &Firing) -> Result<Option<Rc<Source>>> {
    let trigger = firing.trigger();
    if let Some(source) = SOURCES.with_borrow(|sources| sources.get(&trigger).cloned()) {
        return Ok(Some(source));
    }
    let found = as_owner(|| {
        let Some(source) = catalog::find(firing.argument()?)? else { return Ok(None) };
        let Some(relation) = table::locate(&source)?.map(|found| found.relation) else { return Ok(None) };
        let is_here = relation == firing.relation() || table::is_partition_of(firing.relation(), relation)?;
        Ok(is_here.then(|| Rc::new(Source { relation, ..source })))
    })?;
    if let Some(source) = &found {
        SOURCES.with_borrow_mut(|sources| sources.insert(trigger, Rc::clone(source)));
    }
    Ok(found)
}

/// The columns by their present numbers, or None if the key has changed.
fn columns(firing: &Firing, source: &Source) -> Option<TriggerColumns> {
    let number = |name: &str| firing.column(name);
    let key: Option<Vec<i16>> = source.key.iter().map(|name| number(name)).collect();
    let tenant = match &source.config.tenant {
        Some(name) => Some(number(name)?),
        None => None,
    };
    let watched: Option<Vec<i16>> = source.config.watched().into_iter().map(number).collect();
    Some(TriggerColumns { key: key?, tenant, watched })
}

/// Has keys printed the same in every session. The flag says whether settings affect how they are printed.
struct PrintSettings(bool);

impl PrintSettings {
    fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        if self.0 { setting::with(PRINTED, work) } else { work() }
    }
}

/// The changes that are recorded for one statement.
struct ChangeRecorder<'a> {
    source: &'a Source,
    changed: (Vec<String>, Vec<String>),
    gone: (Vec<String>, Vec<String>),
    /// Whether it is recorded that rows without a key changed.
    is_noted: bool,
}

impl ChangeRecorder<'_> {
    fn new(source: &Source) -> ChangeRecorder<'_> {
        ChangeRecorder { source, changed: Default::default(), gone: Default::default(), is_noted: false }
    }

    fn add(&mut self, change: Change) -> Result<()> {
        let (to, id) = match change {
            Change::Changed(id) => (&mut self.changed, id),
            Change::Gone(id) => (&mut self.gone, id),
            // The worker finds out that the key is gone, and reports it.
            Change::Unknown => return self.note_once(),
        };
        push(to, id);
        self.flush_if_full()
    }

    fn add_gone(&mut self, change: Change) -> Result<()> {
        match change {
            Change::Changed(id) | Change::Gone(id) => push(&mut self.gone, id),
            Change::Unknown => return self.note_once(),
        }
        self.flush_if_full()
    }

    fn note_once(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_noted, true) { Ok(()) } else { self.note(What::Changed) }
    }

    fn flush_if_full(&mut self) -> Result<()> {
        if self.changed.1.len().max(self.gone.1.len()) >= BATCH { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        for (what, (tenants, keys)) in
            [(What::Changed, std::mem::take(&mut self.changed)), (What::Gone, std::mem::take(&mut self.gone))]
        {
            if !keys.is_empty() {
                self.append(what, &tenants, &keys)?;
            }
        }
        Ok(())
    }

    /// Records a change that concerns no row in particular.
    fn note(&mut self, what: What) -> Result<()> {
        self.append(what, &[], &[])
    }

    fn append(&self, what: What, tenants: &[String], keys: &[String]) -> Result<()> {
        as_owner(|| changes::append(self.source.source_no, what, tenants, keys))?;
        wake::at_commit(self.source.kb_no);
        Ok(())
    }
}

fn push((tenants, keys): &mut (Vec<String>, Vec<String>), id: RowId) {
    tenants.extend(id.tenant);
    keys.push(id.external_id);
}
