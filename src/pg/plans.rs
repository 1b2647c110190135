//! The plan cache: a statement is prepared once in each process, and its plan is never freed while it runs.

use super::extension_version;
use kb_types::error::{Error, Result};
use pgrx::pg_sys;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::CString;
use std::rc::Rc;

/// Of a statement whose text is longer than this many bytes, at most one plan is kept: the text of a filter
/// with a thousand conditions has megabytes.
const LARGE: usize = 8 * 1024;

/// The most plans that a process keeps. Beyond that, the least recently used plan that does not run is freed.
const MAX_PLANS: usize = 256;

struct CachedPlan {
    plan: pg_sys::SPIPlanPtr,
    types: Vec<pg_sys::Oid>,
    /// The number of statements that run this plan now: a function that a statement calls may run others, and
    /// the same one again.
    running: Rc<Cell<u32>>,
    used: u64,
}

#[derive(Default)]
struct Plans {
    by_text: HashMap<String, CachedPlan>,
    clock: u64,
}

thread_local! {
    static PLANS: RefCell<Plans> = RefCell::default();
}

/// A plan, which is not freed before this is dropped.
pub struct Plan {
    pub ptr: pg_sys::SPIPlanPtr,
    running: Rc<Cell<u32>>,
}

impl Drop for Plan {
    fn drop(&mut self) {
        self.running.set(self.running.get().saturating_sub(1));
    }
}

impl Plans {
    fn find(&mut self, sql: &str, types: &[pg_sys::Oid]) -> Result<Option<Plan>> {
        self.clock += 1;
        let Some(kept) = self.by_text.get_mut(sql) else { return Ok(None) };
        if kept.types != types {
            return Err(Error::Internal(format!("a statement is run with arguments of other types: {sql}")));
        }
        kept.used = self.clock;
        kept.running.set(kept.running.get() + 1);
        Ok(Some(Plan { ptr: kept.plan, running: Rc::clone(&kept.running) }))
    }

    /// Removes the plan that is to be freed before another is kept. Returns None if all plans run; then the
    /// limit is exceeded by one.
    fn evict(&mut self) -> Option<pg_sys::SPIPlanPtr> {
        let idle = || self.by_text.iter().filter(|(_, kept)| kept.running.get() == 0);
        let large = idle().find(|(sql, _)| sql.len() > LARGE);
        let oldest = match large {
            None if self.by_text.len() < MAX_PLANS => return None,
            None => idle().min_by_key(|(_, kept)| kept.used)?,
            Some(large) => large,
        };
        let oldest = oldest.0.clone();
        self.by_text.remove(&oldest).map(|kept| kept.plan)
    }
}

/// The plan of a statement. It may use parallel workers if `in_parallel` is set and the planner expects that
/// to be quicker. Must be called between SPI_connect and SPI_finish.
pub fn plan(sql: &str, mut types: Vec<pg_sys::Oid>, in_parallel: bool) -> Result<Plan> {
    if let Some(plan) = PLANS.with_borrow_mut(|plans| plans.find(sql, &types))? {
        return Ok(plan);
    }
    let text = CString::new(sql).map_err(|e| Error::Internal(e.to_string()))?;
    // SAFETY: called between SPI_connect and SPI_finish; text and types outlive the call.
    let plan = unsafe {
        let options = if in_parallel { pg_sys::CURSOR_OPT_PARALLEL_OK as i32 } else { 0 };
        let plan = extension_version::checked(|| {
            pg_sys::SPI_prepare_cursor(text.as_ptr(), types.len() as i32, types.as_mut_ptr(), options)
        });
        if plan.is_null() || pg_sys::SPI_keepplan(plan) != 0 {
            return Err(Error::Internal(format!("this statement cannot be prepared: {sql}")));
        }
        plan
    };
    let evicted = PLANS.with_borrow_mut(|plans| {
        let evicted = plans.evict();
        let kept = CachedPlan { plan, types: types.clone(), running: Rc::default(), used: 0 };
        // Preparing a statement runs none, so the same one cannot have been kept meanwhile.
        plans.by_text.insert(sql.to_string(), kept);
        evicted
    });
    if let Some(evicted) = evicted {
        // SAFETY: the plan is ours, no longer in the map, and no statement runs it.
        unsafe { pg_sys::SPI_freeplan(evicted) };
    }
    PLANS
        .with_borrow_mut(|plans| plans.find(sql, &types))?
        .ok_or_else(|| Error::Internal("a plan was not kept".into()))
}
