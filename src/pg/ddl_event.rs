//! What an event trigger sees: a statement of DDL that has run, or what it has dropped.

use kb_types::error::{Error, Result};
use pgrx::pg_sys;
use std::ffi::CStr;

/// When an event trigger is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    After,
    Dropped,
}

/// One call of an event trigger's function, while it lasts.
#[derive(Clone, Copy)]
pub struct DdlEvent {
    data: *mut pg_sys::EventTriggerData,
}

impl DdlEvent {
    /// An error if the function was not called by an event trigger.
    pub fn of(call: pg_sys::FunctionCallInfo) -> Result<DdlEvent> {
        // SAFETY: the call is PostgreSQL's; its context is NULL or a node.
        let data = unsafe {
            let context = (*call).context;
            (!context.is_null() && (*context).type_ == pg_sys::NodeTag::T_EventTriggerData)
                .then(|| context.cast::<pg_sys::EventTriggerData>())
        };
        data.map(|data| DdlEvent { data }).ok_or_else(|| Error::State {
            problem: "this function is called by event triggers".into(),
            hint: String::new(),
        })
    }

    pub fn when(&self) -> When {
        // SAFETY: see `of`; the event's name is a constant of PostgreSQL's.
        match unsafe { CStr::from_ptr((*self.data).event) }.to_bytes() {
            b"sql_drop" => When::Dropped,
            _ => When::After,
        }
    }
}

/// Whether this transaction has a table locked against everybody else, as one that it has made, attached as a partition or detached:
/// then nothing that it does to the table waits.
pub fn is_locked_here(relation: u32) -> bool {
    // SAFETY: a look-up among the locks of this process.
    unsafe {
        pg_sys::CheckRelationOidLockedByMe(
            pg_sys::Oid::from(relation),
            pg_sys::AccessExclusiveLock as pg_sys::LOCKMODE,
            true,
        )
    }
}
