//! What an event trigger sees: a statement of DDL before it runs, when it has run, or what it has dropped.

use crate::error::{Error, Result};
use pgrx::list::List;
use pgrx::pg_sys;
use std::ffi::{CStr, c_void};

/// When an event trigger is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    Before,
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
            b"ddl_command_start" => When::Before,
            b"sql_drop" => When::Dropped,
            _ => When::After,
        }
    }

    /// The tables that a DROP TABLE names, as far as there are such.
    pub fn tables(&self) -> Vec<u32> {
        // SAFETY: see `of`; the tag of a node says its type, and a DROP TABLE has a list of lists of names. They are looked up
        // as the statement will, in the caller's search_path.
        unsafe {
            let node = (*self.data).parsetree;
            if node.is_null() || (*node).type_ != pg_sys::NodeTag::T_DropStmt {
                return Vec::new();
            }
            let statement = node.cast::<pg_sys::DropStmt>();
            if (*statement).removeType != pg_sys::ObjectType::OBJECT_TABLE {
                return Vec::new();
            }
            let context = pgrx::memcx::current_context(|context| {
                let names = List::<*mut c_void>::downcast_ptr_in_memcx((*statement).objects, context);
                names.map(|names| names.iter().copied().collect::<Vec<_>>()).unwrap_or_default()
            });
            let find = |names: *mut c_void| {
                let range = pg_sys::makeRangeVarFromNameList(names.cast());
                let missing_ok = pg_sys::RVROption::RVR_MISSING_OK;
                let found = pg_sys::RangeVarGetRelidExtended(
                    range,
                    pg_sys::NoLock as i32,
                    missing_ok,
                    None,
                    std::ptr::null_mut(),
                );
                (found != pg_sys::InvalidOid).then(|| found.to_u32())
            };
            context.into_iter().filter_map(find).collect()
        }
    }
}

/// Locks a table as dropping it does, until the transaction ends.
pub fn lock_to_drop(relation: u32) {
    // SAFETY: waits for others, as the DROP would; that there is no such table any more does no harm.
    unsafe { pg_sys::LockRelationOid(pg_sys::Oid::from(relation), pg_sys::AccessExclusiveLock as i32) };
}
