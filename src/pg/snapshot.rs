//! Waiting without a snapshot, for which VACUUM and CREATE INDEX CONCURRENTLY would wait.

use crate::error::Result;
use pgrx::pg_sys;

/// What runs `SELECT f(…)` and nothing else.
struct Lonely {
    query: *mut pg_sys::QueryDesc,
    owner: pg_sys::ResourceOwner,
}

/// Runs `work`, which takes its own snapshots, without that of the statement if the statement is `SELECT f(…)` and no other
/// function is between: then nothing else in it reads with it. Afterwards it has a new one. Otherwise it keeps its own.
pub fn without<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    let Some(Lonely { query, owner }) = lonely() else { return work() };
    // SAFETY: the query runs, so it and its state are there. What it has of the snapshot are the three that are given back here:
    // one on the stack (PortalRunSelect), two registered with the portal's owner (CreateQueryDesc, standard_ExecutorStart).
    // An ERROR in `work` aborts the transaction, in which nobody looks for them again.
    unsafe {
        let state = (*query).estate;
        pg_sys::PopActiveSnapshot();
        pg_sys::UnregisterSnapshotFromOwner((*state).es_snapshot, owner);
        (*state).es_snapshot = std::ptr::null_mut();
        pg_sys::UnregisterSnapshotFromOwner((*query).snapshot, owner);
        (*query).snapshot = std::ptr::null_mut();
    }
    let result = work();
    // SAFETY: as above; who ends the query finds as many as it expects.
    unsafe {
        let state = (*query).estate;
        (*query).snapshot = pg_sys::RegisterSnapshotOnOwner(pg_sys::GetTransactionSnapshot(), owner);
        (*state).es_snapshot = pg_sys::RegisterSnapshotOnOwner((*query).snapshot, owner);
        pg_sys::PushActiveSnapshot((*query).snapshot);
    }
    result
}

/// Lets go of the snapshot that reading the catalogs leaves until the next one is taken.
pub fn forget_catalogs() {
    // SAFETY: the next reader of a catalog takes another.
    unsafe { pg_sys::InvalidateCatalogSnapshot() };
}

/// The running statement, if it reads nothing, computes one value, and its own snapshot is the current one.
fn lonely() -> Option<Lonely> {
    // SAFETY: the portal that runs is there with all that it points to; each pointer is looked at before it is followed.
    unsafe {
        let portal = pg_sys::ActivePortal.as_ref()?;
        let query = portal.queryDesc.as_ref()?;
        let (plan, state) = (query.plannedstmt.as_ref()?, query.estate.as_ref()?);
        let root = plan.planTree.as_ref()?;
        let is_lonely = portal.strategy == pg_sys::PortalStrategy::PORTAL_ONE_SELECT
            && portal.createLevel == pg_sys::GetCurrentTransactionNestLevel()
            && root.type_ == pg_sys::NodeTag::T_Result
            && root.lefttree.is_null()
            && !root.targetlist.is_null()
            && (*root.targetlist).length == 1
            && plan.subplans.is_null()
            && plan.relationOids.is_null()
            && !query.snapshot.is_null()
            && state.es_snapshot == query.snapshot
            && pg_sys::ActiveSnapshotSet()
            && pg_sys::GetActiveSnapshot() == query.snapshot;
        is_lonely.then_some(Lonely { query: portal.queryDesc, owner: portal.resowner })
    }
}
