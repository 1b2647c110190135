//! What the planner expects of a statement, without running it.

use super::plans::plan;
use super::spi::Arg;
use super::{pinned_settings, setting};
use kb_types::error::{Error, Result};
use pgrx::pg_sys;
use std::ffi::CStr;

/// The number of rows that the planner expects from a statement with these arguments, by its statistics. The
/// statement does not run.
pub fn rows(sql: &str, args: &[Arg]) -> Result<f64> {
    // The plan is made for these values: a generic plan knows nothing of the rows that they match.
    let settings = [(c"plan_cache_mode", c"force_custom_plan")];
    pinned_settings::pinned(|| setting::with(&settings, || expected(sql, args)))
}

/// The number of rows that the planner assumes for a table of schema kb, from its last statistics and its
/// present size.
pub fn rows_of_table(name: &CStr) -> f64 {
    // SAFETY: look-ups by name. The relation is closed again, and an ERROR (the table is gone) releases it
    // with the transaction. The function writes each of the three figures.
    unsafe {
        let schema = pg_sys::get_namespace_oid(c"kb".as_ptr(), false);
        let relation = pg_sys::table_open(
            pg_sys::get_relname_relid(name.as_ptr(), schema),
            pg_sys::AccessShareLock as i32,
        );
        let (mut pages, mut rows, mut all_visible) = (0, 0.0, 0.0);
        pg_sys::estimate_rel_size(relation, std::ptr::null_mut(), &mut pages, &mut rows, &mut all_visible);
        pg_sys::table_close(relation, pg_sys::AccessShareLock as i32);
        rows
    }
}

fn expected(sql: &str, args: &[Arg]) -> Result<f64> {
    // SAFETY: connect and finish pair up on every path that returns. An ERROR unwinds; the abort of the
    // transaction closes SPI and releases the plan, which belongs to the current resource owner. The list has
    // room for as many parameters as there are arguments. What is read from the plan is copied before the
    // plan is released.
    unsafe {
        if pg_sys::SPI_connect() != pg_sys::SPI_OK_CONNECT as i32 {
            return Err(Error::Internal("SPI_connect failed".into()));
        }
        let result = (|| {
            let plan = plan(sql, args.iter().map(Arg::type_oid).collect(), false)?;
            let sources = pg_sys::SPI_plan_get_plan_sources(plan.ptr);
            if sources.is_null() || (*sources).length != 1 {
                return Err(Error::Internal(format!("this is not one statement: {sql}")));
            }
            let source = (*(*sources).elements).ptr_value as *mut pg_sys::CachedPlanSource;
            let list = pg_sys::makeParamList(args.len() as i32);
            let parameters = (&raw mut (*list).params) as *mut pg_sys::ParamExternData;
            for (i, arg) in args.iter().enumerate() {
                let datum = arg.datum();
                let parameter = &mut *parameters.add(i);
                parameter.isnull = datum.is_none();
                parameter.value = datum.unwrap_or(pg_sys::Datum::from(0usize));
                parameter.pflags = pg_sys::PARAM_FLAG_CONST as u16;
                parameter.ptype = arg.type_oid();
            }
            let owner = pg_sys::CurrentResourceOwner;
            let cached = pg_sys::GetCachedPlan(source, list, owner, std::ptr::null_mut());
            let statement = (*(*(*cached).stmt_list).elements).ptr_value as *mut pg_sys::PlannedStmt;
            let rows = (*(*statement).planTree).plan_rows;
            pg_sys::ReleaseCachedPlan(cached, owner);
            Ok(rows)
        })();
        pg_sys::SPI_finish();
        result
    }
}
