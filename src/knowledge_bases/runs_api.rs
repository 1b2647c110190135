//! kb.wait, for a knowledge base or a run.

use crate::pg::function_arguments::required;
use crate::pg::report::reported;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(name = "wait", volatile, parallel_unsafe)]
fn wait_kb(kb_id: Option<&str>, timeout: default!(Option<f64>, "NULL")) -> Result<(), ErrorReport> {
    reported(|| {
        let kb_id = required("kb_id", kb_id)?;
        crate::knowledge_bases::wait::wait_for_knowledge_base(kb_id, timeout)
    })
}

#[pg_extern(name = "wait", volatile, parallel_unsafe)]
fn wait_run(run: Option<i64>, timeout: default!(Option<f64>, "NULL")) -> Result<(), ErrorReport> {
    reported(|| {
        let run = required("run", run)?;
        crate::knowledge_bases::wait::wait_for_run(run, timeout)
    })
}
