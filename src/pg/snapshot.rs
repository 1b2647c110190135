//! Waiting without a snapshot, because VACUUM and CREATE INDEX CONCURRENTLY would have to wait for it.

use kb_types::error::Result;
use pgrx::pg_sys;
use std::ffi::CStr;

/// The query of a statement that is `SELECT f(…)` and nothing else.
struct OnlyCall {
    query: *mut pg_sys::QueryDesc,
    owner: pg_sys::ResourceOwner,
}

/// Runs `work` of the function kb.`name`, which takes its own snapshots. If the statement is `SELECT
/// kb.name(…)`, nothing else in it reads under the statement's snapshot, so the snapshot is released, and
/// replaced by a new one afterwards. In any other statement (further expressions, a function in between) the
/// snapshot is kept.
pub fn without<T>(name: &CStr, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let Some(OnlyCall { query, owner }) = only_call(name) else { return work() };
    // SAFETY: the query runs, so it and its state exist. The three references that it holds to the snapshot
    // are released here: one on the stack (PortalRunSelect) and two that are registered with the portal's
    // owner (CreateQueryDesc, standard_ExecutorStart). An ERROR in `work` aborts the transaction, in which
    // nothing looks for them again.
    unsafe {
        let state = (*query).estate;
        pg_sys::PopActiveSnapshot();
        pg_sys::UnregisterSnapshotFromOwner((*state).es_snapshot, owner);
        (*state).es_snapshot = std::ptr::null_mut();
        pg_sys::UnregisterSnapshotFromOwner((*query).snapshot, owner);
        (*query).snapshot = std::ptr::null_mut();
    }
    let result = work();
    // SAFETY: as above. The code that ends the query finds as many references as it expects.
    unsafe {
        let state = (*query).estate;
        (*query).snapshot = pg_sys::RegisterSnapshotOnOwner(pg_sys::GetTransactionSnapshot(), owner);
        (*state).es_snapshot = pg_sys::RegisterSnapshotOnOwner((*query).snapshot, owner);
        pg_sys::PushActiveSnapshot((*query).snapshot);
    }
    result
}

/// Releases the snapshot that reading the catalogs leaves behind until the next one is taken.
pub fn forget_catalogs() {
    // SAFETY: the next reader of a catalog takes another snapshot.
    unsafe { pg_sys::InvalidateCatalogSnapshot() };
}

/// The running statement, if it only calls this function and its own snapshot is the current one.
fn only_call(name: &CStr) -> Option<OnlyCall> {
    // SAFETY: the running portal exists with everything to which it points. Each pointer is checked before it
    // is followed.
    unsafe {
        let portal = pg_sys::ActivePortal.as_ref()?;
        let query = portal.queryDesc.as_ref()?;
        let (plan, state) = (query.plannedstmt.as_ref()?, query.estate.as_ref()?);
        let root = plan.planTree.as_ref()?;
        let is_only_call = portal.strategy == pg_sys::PortalStrategy::PORTAL_ONE_SELECT
            && portal.createLevel == pg_sys::GetCurrentTransactionNestLevel()
            && root.type_ == pg_sys::NodeTag::T_Result
            && root.lefttree.is_null()
            && !root.targetlist.is_null()
            && (*root.targetlist).length == 1
            && calls((*(*root.targetlist).elements).ptr_value.cast(), name)
            && plan.subplans.is_null()
            && plan.relationOids.is_null()
            && !query.snapshot.is_null()
            && state.es_snapshot == query.snapshot
            && pg_sys::ActiveSnapshotSet()
            && pg_sys::GetActiveSnapshot() == query.snapshot;
        is_only_call.then_some(OnlyCall { query: portal.queryDesc, owner: portal.resowner })
    }
}

/// Whether a column of a result is a call of this function of kb.
///
/// # Safety
///
/// `entry` must come from the target list of a plan.
unsafe fn calls(entry: *const pg_sys::TargetEntry, name: &CStr) -> bool {
    // SAFETY: each pointer is checked before it is followed. Names of functions are C strings.
    unsafe {
        let Some(expression) = entry.as_ref().and_then(|entry| entry.expr.as_ref()) else { return false };
        if expression.type_ != pg_sys::NodeTag::T_FuncExpr {
            return false;
        }
        let function = (*std::ptr::from_ref(expression).cast::<pg_sys::FuncExpr>()).funcid;
        let found = pg_sys::get_func_name(function);
        !found.is_null()
            && CStr::from_ptr(found) == name
            && pg_sys::get_func_namespace(function) == pg_sys::get_namespace_oid(c"kb".as_ptr(), true)
    }
}
