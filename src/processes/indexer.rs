//! The indexer: builds the HNSW indexes and those on keys of metadata that are wanted in one database, merges
//! large segments of keyword search, then leaves. A process of its own, because CREATE INDEX CONCURRENTLY
//! waits for older transactions, which the worker must not.
//!
//! The indexer looks at tables as the worker does (`vectors/upkeep/wanted_indexes.rs`), and leaves when
//! nothing more may come. Tenants take turns, and within a tenant its tables, one index at a time; after
//! each, indexers of other databases get the place (`build_place.rs`).
//!
//! A session that drops or locks a table has precedence over its index. A drop cancels the build, and in a
//! deadlock the indexer gives way; it begins again, [`ATTEMPTS`] times, while the table is there. Any other
//! error is a failure, which is logged with the table and the knowledge base.

use super::build_place;
use crate::filters::metadata_indexes;
use crate::filters::metadata_indexes::IndexTask;
use crate::keyword::Owner;
use crate::keyword::upkeep::merge_large;
use crate::pg::pidfile::PidFile;
use crate::pg::{background, ddl, latch, niceness, pinned_settings, report, setting, txn, wake};
use crate::sql::server_catalogs;
use crate::vectors::VectorDb;
use crate::vectors::hnsw;
use crate::vectors::hnsw::{IndexBuild, IndexWork, Table};
use crate::vectors::upkeep::{Wish, look};
use crate::worker::intake::round_robin::{Member, RoundRobin};
use kb_search::vector_segments::Traffic;
use kb_types::error::Result;
use pgrx::pg_sys;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// How often a build is begun. A session that drops or locks the table comes first: it ends the build.
const ATTEMPTS: u32 = 10;
/// The pause after a table's index could not be built, and how often it doubles.
const PAUSE: Duration = Duration::from_secs(30);
const PAUSES: u32 = 5;
/// How long the indexer waits for such a session.
const GIVE_WAY: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Large segments are merged when nothing was written to their table for so long.
const QUIET: Duration = Duration::from_secs(10);
/// How often a table is looked at that may want something soon, and all others meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
const LOOK_AT_ALL: Duration = Duration::from_secs(10);
/// The pause after something was done where other databases' indexers may be waiting for the place: they look
/// every LOOK_AGAIN.
const GIVE_PLACE: Duration = Duration::from_millis(600);

pub fn main(database: pg_sys::Oid) {
    background::start();
    background::connect(database);
    let name = wake::indexer_name(database);
    let Ok(Some(_pidfile)) = PidFile::acquire(&name) else { background::exit(0) };
    wake::has_started(&name);
    pinned_settings::pin_for_process();
    niceness::let_worker_go_first();
    // In a deadlock (with a DROP, for example) the indexer gives way.
    setting::set_for_process(c"deadlock_timeout", c"50ms");
    let asked = background::asked_tables();
    let mut tables = Tables::default();
    let mut attempts = HashMap::new();
    loop {
        let stays = build_wanted(&asked, &mut tables).and_then(|stays| {
            merge_words(&mut tables)?;
            Ok(stays)
        });
        if let Err(error) = keep_metadata_indexes(&mut attempts) {
            report::log(&format!("indexer cannot look for keys of metadata without an index: {error}"));
            break;
        }
        match stays {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                // This is no fault if the extension was dropped meanwhile.
                if matches!(txn::in_txn(server_catalogs::is_installed), Ok(true)) {
                    report::log(&format!("indexer cannot look for tables without an index: {error}"));
                }
                break;
            }
        }
    }
    background::exit(0)
}

/// Makes the indexes on keys of metadata that are wanted, and drops those that are not any more; each is
/// tried [`ATTEMPTS`] times.
fn keep_metadata_indexes(attempts: &mut HashMap<IndexTask, u32>) -> Result<()> {
    loop {
        if !txn::in_txn(server_catalogs::is_installed)? {
            return Ok(());
        }
        // The tasks are read anew each time, because the previous ones may have taken long.
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

fn do_task(task: &IndexTask) -> Result<()> {
    for statement in task.statements() {
        txn::report_activity(Some(&statement));
        ddl::run_top_level(&statement)?;
    }
    txn::in_txn(metadata_indexes::analyze)
}

/// What this process knows of one table.
#[derive(Default)]
struct Known {
    /// Builds that failed or were ended, one after the other.
    failures: u32,
    /// When there is another try after ATTEMPTS, and how often there was.
    retry_at: Option<Instant>,
    retries: u32,
    /// There was not enough (shared) memory or disk for several processes.
    is_alone: bool,
    has_built: bool,
    /// Its largest number when segments were to be merged as soon as it is quiet, and since when.
    since: Option<(i32, Instant)>,
}

/// A table that wants something, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Wanting {
    table: VectorDb,
    tenant_id: String,
}

impl Member for Wanting {
    fn group(&self) -> &str {
        &self.tenant_id
    }
}

/// The tables that have wanted something.
#[derive(Default)]
struct Tables {
    known: HashMap<VectorDb, Known>,
    /// Tenants take turns, and within each its tables, so that none waits for all that others want.
    turns: RoundRobin<Wanting>,
    /// When all tables were looked at.
    all_seen: Option<Instant>,
    /// The owners whose segments could not be merged.
    unmerged: HashSet<Owner>,
}

fn merge_words(tables: &mut Tables) -> Result<()> {
    match txn::in_txn(server_catalogs::is_installed)? {
        true => merge_large(&mut tables.unmerged),
        false => Ok(()),
    }
}

/// Does what tables want, one thing after the other; whether there may be more to do soon.
fn build_wanted(asked: &[u32], tables: &mut Tables) -> Result<bool> {
    if !txn::in_txn(server_catalogs::is_installed)? {
        return Ok(false);
    }
    let begun = Instant::now();
    let is_all = tables.all_seen.is_none_or(|at| at.elapsed() >= LOOK_AT_ALL);
    let only: Option<Vec<VectorDb>> = (!is_all).then(|| tables.known.keys().cloned().collect());
    let (mut has_worked, mut is_waiting, mut is_busy) = (false, false, false);
    let mut looked_at = HashMap::new();
    for table in txn::in_txn(|| hnsw::tables(only.as_deref()))? {
        let is_known = tables.known.contains_key(table.vector_db());
        // The worker logs which one cannot be looked at; the others get their indexes.
        if !is_known && !matches!(look(&table, asked.contains(&table.oid), false), Ok(Wish::Work(_))) {
            continue;
        }
        let known = tables.known.entry(table.vector_db().clone()).or_default();
        if known.retry_at.is_some_and(|at| at <= Instant::now()) {
            (known.failures, known.retry_at) = (0, None);
        }
        if known.failures < ATTEMPTS {
            let (vector_db, tenant_id) = (table.vector_db().clone(), table.tenant_id.clone());
            tables.turns.add([Wanting { table: vector_db.clone(), tenant_id }]);
            looked_at.insert(vector_db, table);
        }
    }
    while let Some(turn) = tables.turns.take(1, |_| true).pop() {
        let mut served = Vec::new();
        if let Some(table) = looked_at.get(&turn.whose.table) {
            let known = tables.known.entry(turn.whose.table.clone()).or_default();
            match next(table, asked, known)? {
                Next::Done => {
                    has_worked = true;
                    served.extend((known.failures < ATTEMPTS).then(|| (turn.whose.clone(), 0)));
                    // While documents come, a table may always want something.
                    merge_large(&mut tables.unmerged)?;
                    if txn::in_txn(hnsw::has_other_builders)? {
                        latch::wait(GIVE_PLACE);
                    }
                }
                Next::Wait => {
                    is_waiting = true;
                    is_busy |= table.is_waited_for;
                }
                Next::Nothing => {}
            }
        }
        tables.turns.give_back(vec![turn], &served, 1, false);
        // Others may want something by now. Those that are left keep their turns.
        if has_worked && begun.elapsed() >= LOOK_AT_ALL {
            break;
        }
    }
    // What came to tables behind which others took their time is seen now.
    tables.all_seen =
        if is_all && !has_worked { Some(Instant::now()) } else { tables.all_seen.filter(|_| !has_worked) };
    if !has_worked && is_waiting {
        latch::wait(LOOK_AGAIN);
    }
    // What is urgent is done by another indexer, which the worker asks for.
    let stays = (has_worked || is_waiting) && !(is_busy && niceness::is_last());
    Ok(stays && !txn::in_txn(|| Ok(background::database_is_wanted()))?)
}

enum Next {
    /// Something was done, or failed and is to be tried again.
    Done,
    /// Something may have to be done soon.
    Wait,
    Nothing,
}

/// Does the next thing that a table wants.
fn next(table: &Table, asked: &[u32], known: &mut Known) -> Result<Next> {
    // Other databases' indexers may be building as many as may be at a time.
    let Some(_place) = build_place::take()? else { return Ok(Next::Wait) };
    // The table is read anew, because the builds before it may have taken long.
    let Some(table) = txn::in_txn(|| hnsw::tables(Some(std::slice::from_ref(table.vector_db()))))?.pop()
    else {
        return Ok(Next::Nothing);
    };
    let is_quiet = known.since.is_some_and(|(_, since)| since.elapsed() >= QUIET);
    let work = match look(&table, asked.contains(&table.oid), is_quiet) {
        Ok(Wish::Work(work)) => work,
        // One with indexes that is being filled is looked at again: the worker looks less often.
        Ok(Wish::Later) if known.has_built => return Ok(Next::Wait),
        _ => return Ok(Next::Nothing),
    };
    let result = match &work {
        IndexWork::WhenQuiet { last } => {
            if known.since.is_none_or(|(before, _)| before != *last) {
                known.since = Some((*last, Instant::now()));
            }
            return Ok(Next::Wait);
        }
        IndexWork::Nothing => return Ok(Next::Nothing),
        // Nothing is lost by a later merge, but autovacuum would begin anew.
        IndexWork::Build(build)
            if build.traffic == Traffic::Quiet && txn::in_txn(|| table.is_vacuumed())? =>
        {
            return Ok(Next::Wait);
        }
        IndexWork::Drop { name } => run(&hnsw::drop_statement(name)),
        IndexWork::Build(build) => have_built(&table, build, known.is_alone),
    };
    txn::report_activity(None);
    let Err(error) = result else {
        (known.failures, known.retries) = (0, 0);
        known.has_built = true;
        return Ok(Next::Done);
    };
    known.failures += 1;
    known.since = None;
    let gives_way = ["40P01", "57014"].contains(&error.sqlstate()) || txn::in_txn(|| table.is_going())?;
    // Class 53: insufficient resources.
    if error.sqlstate().starts_with("53") && !known.is_alone {
        known.is_alone = true;
        return Ok(Next::Done);
    }
    if gives_way && known.failures < ATTEMPTS {
        wait_for_others(&table);
        return Ok(Next::Done);
    }
    known.failures = ATTEMPTS;
    known.retry_at = Some(Instant::now() + PAUSE * (1 << known.retries));
    known.retries = (known.retries + 1).min(PAUSES);
    let name = txn::in_txn(|| table.describe())?;
    report::log(&format!("the index of {name} cannot be built: {error}"));
    Ok(Next::Nothing)
}

fn run(statement: &str) -> Result<()> {
    txn::report_activity(Some(statement));
    ddl::run_top_level(statement)
}

fn have_built(table: &Table, build: &IndexBuild, is_alone: bool) -> Result<()> {
    // While documents come, the other cores are left to those who write and ask. A merge takes what is left.
    // Several processes keep all of maintenance_work_mem in shared memory.
    setting::set_parallel_maintenance_workers(if build.is_draft || is_alone { Some(0) } else { None });
    if build.traffic == Traffic::Quiet {
        niceness::let_all_go_first();
    }
    run(&txn::in_txn(|| table.create_statement(build))?)?;
    txn::in_txn(|| table.unpack())?;
    // Until autovacuum has run, the planner would not know of what was written and would scan all chunks for
    // a join.
    txn::in_txn(|| table.analyze_after(build))
}

/// Waits until nobody locks all others out of a table any more, or it is gone. Interrupts are served by the
/// statements, so that a late request to cancel ends one of those and not the process.
fn wait_for_others(table: &Table) {
    let begun = Instant::now();
    loop {
        latch::wait(LOOK_EVERY);
        let is_locked = txn::in_txn(|| table.is_locked_exclusively()).unwrap_or(true);
        if !is_locked || begun.elapsed() > GIVE_WAY {
            return;
        }
    }
}
