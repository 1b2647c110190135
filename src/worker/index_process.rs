//! The indexer: builds the HNSW indexes that are wanted in one database, then leaves. A process of its
//! own, because CREATE INDEX CONCURRENTLY waits for older transactions, which the worker must not.

use super::indexes;
use crate::error::Result;
use crate::pg::pidfile::PidFile;
use crate::pg::{background, ddl, latch, pinned_settings, report, setting, txn, wake};
use crate::store::server_catalogs;
use crate::store::vector_store::VectorDb;
use crate::store::vector_store::index::Unindexed;
use pgrx::pg_sys;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How often a build is begun. A session that drops or locks the table comes first: it ends the build.
const ATTEMPTS: u32 = 10;
/// How long the indexer waits for such a session.
const GIVE_WAY: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub fn main(database: pg_sys::Oid) {
    background::start();
    background::connect(database);
    let Ok(Some(_pidfile)) = PidFile::acquire(&wake::indexer_name(database)) else { background::exit(0) };
    pinned_settings::pin_for_process();
    // In a deadlock (with a DROP, say) the indexer gives way.
    setting::set_for_process(c"deadlock_timeout", c"50ms");
    let mut attempts = HashMap::new();
    loop {
        match build_next(&mut attempts) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                // Not where the extension was dropped meanwhile.
                if matches!(txn::in_txn(server_catalogs::is_installed), Ok(true)) {
                    report::log(&format!("indexer cannot look for tables without an index: {error}"));
                }
                break;
            }
        }
    }
    background::exit(0)
}

/// Builds one index; false when none is wanted that was not tried often enough. `attempts` counts them by table.
fn build_next(attempts: &mut HashMap<VectorDb, u32>) -> Result<bool> {
    if !txn::in_txn(server_catalogs::is_installed)? {
        return Ok(false);
    }
    let is_next = |table: &Unindexed| attempts.get(table.vector_db()).is_none_or(|count| *count < ATTEMPTS);
    let Some(next) = indexes::wanted()?.into_iter().find(is_next) else { return Ok(false) };
    let count = attempts.entry(next.vector_db().clone()).or_insert(0);
    *count += 1;
    let result = build(&next);
    txn::report_activity(None);
    let Err(error) = result else { return Ok(true) };
    let gives_way = ["40P01", "57014"].contains(&error.sqlstate()) || txn::in_txn(|| next.is_going())?;
    if gives_way && *count < ATTEMPTS {
        wait_for_others(&next);
        return Ok(true);
    }
    *count = ATTEMPTS;
    let name = txn::in_txn(|| next.describe())?;
    report::log(&format!("the index of {name} cannot be built: {error}"));
    Ok(true)
}

fn build(table: &Unindexed) -> Result<()> {
    let statement = txn::in_txn(|| table.create_statement())?;
    txn::report_activity(Some(&statement));
    if table.is_invalid {
        ddl::run_top_level(&table.drop_statement())?;
    }
    ddl::run_top_level(&statement)?;
    // Much was written, and until autovacuum has run the planner would join chunks by scanning them all.
    txn::in_txn(|| table.analyze())
}

/// Waits until nobody locks all others out of a table any more, or it is gone. Interrupts are served by the statements,
/// so that a late request to cancel ends one of those and not the process.
fn wait_for_others(table: &Unindexed) {
    let begun = Instant::now();
    loop {
        latch::wait(LOOK_EVERY);
        let is_locked = txn::in_txn(|| table.is_locked_exclusively()).unwrap_or(true);
        if !is_locked || begun.elapsed() > GIVE_WAY {
            return;
        }
    }
}
