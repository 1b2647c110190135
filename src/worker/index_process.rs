//! The indexer: builds the HNSW indexes and those on keys of metadata that are wanted in one database, then leaves. A process of its
//! own, because CREATE INDEX CONCURRENTLY waits for older transactions, which the worker must not.

use super::indexes;
use crate::error::Result;
use crate::pg::pidfile::PidFile;
use crate::pg::{background, ddl, latch, pinned_settings, report, setting, txn, wake};
use crate::store::metadata_indexes::{self, Task};
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
    let asked = background::asked_tables();
    let mut attempts = HashMap::new();
    loop {
        match build_wanted(&asked, &mut attempts) {
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
    if let Err(error) = keep_metadata_indexes() {
        report::log(&format!("indexer cannot look for keys of metadata without an index: {error}"));
    }
    background::exit(0)
}

/// Makes the indexes on keys of metadata that are wanted, and drops those that are not any more.
fn keep_metadata_indexes() -> Result<()> {
    let mut attempts: HashMap<Task, u32> = HashMap::new();
    loop {
        if !txn::in_txn(server_catalogs::is_installed)? {
            return Ok(());
        }
        // As it is now: the tasks before took their time.
        let mut tasks = txn::in_txn(metadata_indexes::tasks)?.into_iter();
        let Some(task) = tasks.find(|task| attempts.get(task).is_none_or(|count| *count < ATTEMPTS)) else {
            return Ok(());
        };
        let count = attempts.entry(task.clone()).or_insert(0);
        *count += 1;
        let result = do_task(&task);
        txn::report_activity(None);
        let Err(error) = result else { continue };
        let gives_way = ["40P01", "57014"].contains(&error.sqlstate());
        if !gives_way || *count == ATTEMPTS {
            *count = ATTEMPTS;
            report::log(&format!("index {} of kb.documents cannot be made or dropped: {error}", task.name));
        } else {
            latch::wait(latch::LONGEST);
        }
    }
}

fn do_task(task: &Task) -> Result<()> {
    for statement in task.statements() {
        txn::report_activity(Some(&statement));
        ddl::run_top_level(&statement)?;
    }
    txn::in_txn(metadata_indexes::analyze)
}

/// Looks at all tables once, and builds the indexes that are wanted; false when none is that was not tried often enough.
/// `attempts` counts them by table.
fn build_wanted(asked: &[u32], attempts: &mut HashMap<VectorDb, u32>) -> Result<bool> {
    if !txn::in_txn(server_catalogs::is_installed)? {
        return Ok(false);
    }
    let mut wanted = indexes::wanted(None, asked)?;
    wanted.retain(|table| attempts.get(table.vector_db()).is_none_or(|count| *count < ATTEMPTS));
    for table in &wanted {
        let count = attempts.entry(table.vector_db().clone()).or_insert(0);
        build_one(table.vector_db(), asked, count)?;
    }
    Ok(!wanted.is_empty())
}

/// Builds one index, if it is still wanted; again when a session that came first has ended the build.
fn build_one(table: &VectorDb, asked: &[u32], count: &mut u32) -> Result<()> {
    while *count < ATTEMPTS {
        *count += 1;
        // As it is now: the builds before took their time, and one that was ended leaves an invalid index.
        let Some(next) = indexes::wanted(Some(std::slice::from_ref(table)), asked)?.pop() else {
            return Ok(());
        };
        let result = build(&next);
        txn::report_activity(None);
        let Err(error) = result else { return Ok(()) };
        let gives_way = ["40P01", "57014"].contains(&error.sqlstate()) || txn::in_txn(|| next.is_going())?;
        if gives_way && *count < ATTEMPTS {
            wait_for_others(&next);
            continue;
        }
        *count = ATTEMPTS;
        let name = txn::in_txn(|| next.describe())?;
        report::log(&format!("the index of {name} cannot be built: {error}"));
    }
    Ok(())
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
