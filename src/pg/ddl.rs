//! DDL that SPI cannot do: top-level statements, dependencies and locks of tables.

use super::report::from_caught;
use kb_types::error::{Error, Result};
use pgrx::{PgTryBuilder, pg_sys};
use std::ffi::CString;
use std::panic::AssertUnwindSafe;

/// Runs one utility statement at top level, which CREATE INDEX CONCURRENTLY requires: SPI and functions count
/// as being inside a transaction block. For background processes only, outside any transaction.
pub fn run_top_level(sql: &str) -> Result<()> {
    let text = CString::new(sql).map_err(|e| Error::Internal(e.to_string()))?;
    let result = PgTryBuilder::new(AssertUnwindSafe(|| {
        // SAFETY: parse tree and statement live in a memory context of their own, which outlasts the several
        // transactions of a concurrent build. The snapshot is pushed for the first of them, as
        // PortalRunUtility does, and is gone or popped afterwards.
        unsafe {
            pg_sys::SetCurrentStatementStartTimestamp();
            pg_sys::StartTransactionCommand();
            let context = pg_sys::AllocSetContextCreateInternal(
                pg_sys::TopMemoryContext,
                c"kb statement".as_ptr(),
                0,
                8 * 1024,
                8 * 1024 * 1024,
            );
            pg_sys::CurrentMemoryContext = context;
            let parsed = pg_sys::pg_parse_query(text.as_ptr());
            let raw = (*(*parsed).elements).ptr_value as *mut pg_sys::RawStmt;
            let statement =
                pg_sys::palloc0(std::mem::size_of::<pg_sys::PlannedStmt>()) as *mut pg_sys::PlannedStmt;
            (*statement).type_ = pg_sys::NodeTag::T_PlannedStmt;
            (*statement).commandType = pg_sys::CmdType::CMD_UTILITY;
            (*statement).canSetTag = true;
            (*statement).utilityStmt = (*raw).stmt;
            (*statement).stmt_location = 0;
            (*statement).stmt_len = 0;
            pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
            pg_sys::ProcessUtility(
                statement,
                text.as_ptr(),
                false,
                pg_sys::ProcessUtilityContext::PROCESS_UTILITY_TOPLEVEL,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                pg_sys::None_Receiver,
                std::ptr::null_mut(),
            );
            if pg_sys::ActiveSnapshotSet() {
                pg_sys::PopActiveSnapshot();
            }
            pg_sys::CommitTransactionCommand();
            pg_sys::MemoryContextDelete(context);
        }
        Ok(())
    }))
    .catch_others(|caught| Err(from_caught(caught)))
    .catch_rust_panic(|caught| Err(from_caught(caught)))
    .execute();
    if result.is_err() {
        // SAFETY: as in txn::in_txn.
        unsafe { pg_sys::AbortCurrentTransaction() };
    }
    result
}

/// Whether schema kb has a table of this name.
pub fn table_exists(table: &str) -> Result<bool> {
    let name = CString::new(table).map_err(|e| Error::Internal(e.to_string()))?;
    // SAFETY: catalog look-ups by name inside a transaction.
    let relation =
        unsafe { pg_sys::get_relname_relid(name.as_ptr(), pg_sys::get_namespace_oid(c"kb".as_ptr(), true)) };
    Ok(relation != pg_sys::InvalidOid)
}

/// Takes an exclusive lock on a table of schema kb until the end of the transaction. Returns false if there
/// is no such table, or if it was dropped while the call waited for the lock.
pub fn lock_if_there(table: &str) -> Result<bool> {
    let name = CString::new(table).map_err(|e| Error::Internal(e.to_string()))?;
    // SAFETY: a look-up by name inside a transaction. Both names outlive it and are only read.
    let relation = unsafe {
        let range = pg_sys::makeRangeVar(c"kb".as_ptr().cast_mut(), name.as_ptr().cast_mut(), -1);
        pg_sys::RangeVarGetRelidExtended(
            range,
            pg_sys::AccessExclusiveLock as i32,
            pg_sys::RVROption::RVR_MISSING_OK,
            None,
            std::ptr::null_mut(),
        )
    };
    Ok(relation != pg_sys::InvalidOid)
}

/// Makes DROP EXTENSION kb drop this table of schema kb, too, although the table is not a member of the
/// extension. (pg_dump omits the definitions of members, and vector tables must be dumped with theirs.)
pub fn drop_with_extension(table: &str) -> Result<()> {
    let name = CString::new(table).map_err(|e| Error::Internal(e.to_string()))?;
    // SAFETY: catalog look-ups by name inside a transaction; the addresses are complete.
    unsafe {
        let schema = pg_sys::get_namespace_oid(c"kb".as_ptr(), false);
        let relation = pg_sys::get_relname_relid(name.as_ptr(), schema);
        let extension = pg_sys::get_extension_oid(c"kb".as_ptr(), false);
        if relation == pg_sys::InvalidOid {
            return Err(Error::Internal(format!("table kb.{table} does not exist")));
        }
        let depender =
            pg_sys::ObjectAddress { classId: pg_sys::RelationRelationId, objectId: relation, objectSubId: 0 };
        let referenced = pg_sys::ObjectAddress {
            classId: pg_sys::ExtensionRelationId,
            objectId: extension,
            objectSubId: 0,
        };
        pg_sys::recordDependencyOn(&depender, &referenced, pg_sys::DependencyType::DEPENDENCY_AUTO);
    }
    Ok(())
}

/// Makes DROP EXTENSION kb drop a trigger of a table, as ALTER TRIGGER … DEPENDS ON EXTENSION does. That
/// statement would lock the extension until the transaction ends, so that no other session could attach a
/// table meanwhile.
pub fn trigger_depends_on_extension(relation: u32, trigger: &str) -> Result<()> {
    let name = CString::new(trigger).map_err(|e| Error::Internal(e.to_string()))?;
    // SAFETY: catalog look-ups inside a transaction. A missing object raises an ERROR, and the addresses are
    // complete.
    unsafe {
        let depender = pg_sys::ObjectAddress {
            classId: pg_sys::TriggerRelationId,
            objectId: pg_sys::get_trigger_oid(pg_sys::Oid::from(relation), name.as_ptr(), false),
            objectSubId: 0,
        };
        let referenced = pg_sys::ObjectAddress {
            classId: pg_sys::ExtensionRelationId,
            objectId: pg_sys::get_extension_oid(c"kb".as_ptr(), false),
            objectSubId: 0,
        };
        pg_sys::recordDependencyOn(&depender, &referenced, pg_sys::DependencyType::DEPENDENCY_AUTO_EXTENSION);
    }
    Ok(())
}
