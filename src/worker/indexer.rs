//! The indexer: builds the HNSW indexes that are wanted in one database, then leaves. A process of its
//! own, because CREATE INDEX CONCURRENTLY waits for older transactions, which the worker must not.

use crate::error::Result;
use crate::pg::pidfile::PidFile;
use crate::pg::{background, ddl, report, setting, txn, wake};
use crate::store::{server, vectors};
use pgrx::pg_sys;

pub fn main(database: pg_sys::Oid) {
    background::start();
    background::connect(database);
    let Ok(Some(_pidfile)) = PidFile::acquire(&wake::indexer_name(database)) else { background::exit(0) };
    setting::pin_for_process();
    // In a deadlock (with a DROP, say) the one to give way.
    setting::set_for_process(c"deadlock_timeout", c"50ms");
    loop {
        match build_next() {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                report::log(&format!("index build failed: {error}"));
                break;
            }
        }
    }
    background::exit(0)
}

/// Builds one index; false when none is wanted.
fn build_next() -> Result<bool> {
    let wanted = txn::in_txn(|| {
        if !server::is_installed()? {
            return Ok(None);
        }
        let Some(state) = vectors::without_index()?.into_iter().find(|state| state.is_wanted) else {
            return Ok(None);
        };
        let statement = vectors::create_index_statement(&state.table)?;
        Ok(Some((state, statement)))
    })?;
    let Some((state, statement)) = wanted else { return Ok(false) };
    txn::report_activity(Some(&statement));
    if state.valid.is_some() {
        ddl::run_top_level(&vectors::drop_index_statement(&state.table))?;
    }
    ddl::run_top_level(&statement)?;
    // Much was written, and until autovacuum comes by, the planner would join chunks by scanning them all.
    txn::in_txn(|| vectors::analyze(&state.table))?;
    txn::report_activity(None);
    Ok(true)
}
