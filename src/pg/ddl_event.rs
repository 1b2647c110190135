//! What an event trigger reads: the DDL statement that has run, or the objects that it has dropped.

use kb_types::error::{Error, Result};
use pgrx::pg_sys;
use std::ffi::CStr;

/// The moment at which an event trigger is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    After,
    Dropped,
}

/// One call of the function of an event trigger. It must not outlive the call.
#[derive(Clone, Copy)]
pub struct DdlEvent {
    data: *mut pg_sys::EventTriggerData,
}

impl DdlEvent {
    /// Returns an error if the function was not called by an event trigger.
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
        // SAFETY: see `of`. The name of the event is a constant of PostgreSQL.
        match unsafe { CStr::from_ptr((*self.data).event) }.to_bytes() {
            b"sql_drop" => When::Dropped,
            _ => When::After,
        }
    }
}

/// Whether this transaction holds an exclusive lock on a table, for example because it has created the table
/// or has attached or detached it as a partition. If so, it can do nothing further to the table that would
/// have to wait.
pub fn is_locked_here(relation: u32) -> bool {
    // SAFETY: looks only among the locks of this process.
    unsafe {
        pg_sys::CheckRelationOidLockedByMe(
            pg_sys::Oid::from(relation),
            pg_sys::AccessExclusiveLock as pg_sys::LOCKMODE,
            true,
        )
    }
}
