//! Makes jobs of the rows of attached tables: of those that were there before their table was attached, or
//! their partition.

use super::row_intake::TIME_LIMIT;
use super::source_faults::told;
use crate::jobs::queue;
use crate::jobs::queue::Subject;
use crate::pg::{time_limit, txn};
use crate::tables::changes;
use crate::tables::changes::Filled;
use crate::tables::partitions;
use crate::tables::source_tables::{located, refusal};
use crate::tables::sources::rows;
use crate::tables::sources::rows::KeyRow;
use crate::tables::sources::{Source, catalog, table};
use kb_types::error::Result;
use kb_types::row_states::Priority;
use kb_types::{id, row_key};
use std::time::{Duration, Instant};

/// How many rows are enqueued at once; below how many jobs of the knowledge base more rows are enqueued; and
/// for how long rows are read that turn out not to be published.
const BACKFILL: usize = 1000;
const BACKFILL_BELOW: i64 = 500;
const BACKFILL_TIME: Duration = Duration::from_millis(100);

/// A tenant and an external_id.
pub type Name = (String, String);

/// Why a row cannot become a document, without any value of the row.
fn problem(source: &Source, tenant_id: &str, name: &str) -> Option<String> {
    if let Some(problem) = id::problem(name, id::MAX_EXTERNAL_BYTES).or_else(|| id::tenant_problem(tenant_id))
    {
        return Some(format!("its key or tenant: {problem}"));
    }
    refusal(source, tenant_id)
}

/// Enqueues rows, except those that cannot become documents.
pub fn enqueue(source: &Source, names: impl IntoIterator<Item = Name>, priority: Priority) -> Result<()> {
    let (mut subjects, mut refused) = (Vec::new(), None);
    for (tenant_id, name) in names {
        match problem(source, &tenant_id, &name) {
            Some(problem) => refused = Some(problem),
            None => subjects.push(Subject { tenant_id, name, source_no: Some(source.source_no) }),
        }
    }
    if !subjects.is_empty() {
        queue::enqueue(source.kb_no, &subjects, priority, None)?;
    }
    match refused {
        Some(problem) => {
            catalog::set_error(source.source_no, Some(&format!("{}{problem}", catalog::REFUSED)))
        }
        None => Ok(()),
    }
}

/// Enqueues the next rows that were there before the table was attached.
pub fn backfill(source_no: i64, mut asks_published: bool, spent: &mut Duration) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < BACKFILL_TIME {
        let Some(source) = txn::in_txn(|| catalog::find(source_no))? else { return Ok(()) };
        if source.backfill.is_none() {
            return Ok(());
        }
        if txn::in_txn(|| queue::waiting(source.kb_no))? >= BACKFILL_BELOW {
            return Ok(());
        }
        let page = |asked| backfill_page(source_no, asked, &mut *spent);
        // Attaching the table again begins anew.
        let give_up = || catalog::set_backfill(&source, None);
        next_page(source_no, &mut asks_published, page, give_up)?;
    }
    Ok(())
}

/// Enqueues a page of rows. If the condition fails, or takes too long, this page and those after it find out
/// row by row what is published. After an error that does not pass by itself, `give_up` makes sure that
/// nobody has to wait for these rows.
fn next_page(
    source_no: i64,
    asks_published: &mut bool,
    mut page: impl FnMut(bool) -> Result<()>,
    give_up: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let mut result = txn::in_txn(|| page(*asks_published));
    if *asks_published && result.as_ref().is_err_and(|error| !error.is_lock()) {
        *asks_published = false;
        result = txn::in_txn(|| page(false));
    }
    if let Err(error) = &result
        && !error.is_transient()
    {
        txn::in_txn(|| {
            catalog::set_error(source_no, Some(&told(error)))?;
            give_up()
        })?;
    }
    result
}

fn backfill_page(source_no: i64, asks_published: bool, spent: &mut Duration) -> Result<()> {
    let Some(source) = catalog::hold(source_no)? else { return Ok(()) };
    let Some(after) = source.backfill.clone() else { return Ok(()) };
    let source = located(source)?;
    let found =
        time_limit::within(TIME_LIMIT, spent, || rows::after(&source, &after, BACKFILL, asks_published))?;
    let last = found.last().map(|row| row.key.clone()).filter(|_| found.len() == BACKFILL);
    enqueue(&source, names_of(&source, found), Priority::Backfill)?;
    catalog::set_backfill(&source, last.as_deref())
}

/// Enqueues the next rows that were in new partitions before these had triggers.
pub fn fill(source_no: i64, mut asks_published: bool, spent: &mut Duration) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < BACKFILL_TIME {
        let found = txn::in_txn(|| Ok((catalog::find(source_no)?, changes::filled(source_no)?)))?;
        let (Some(source), Some(filled)) = found else { return Ok(()) };
        if txn::in_txn(|| queue::waiting(source.kb_no))? >= BACKFILL_BELOW {
            return Ok(());
        }
        let page = |asked| fill_page(source_no, &filled, asked, &mut *spent);
        let give_up = || changes::delete(source_no, &[filled.change_id]);
        next_page(source_no, &mut asks_published, page, give_up)?;
    }
    Ok(())
}

fn fill_page(source_no: i64, filled: &Filled, asks_published: bool, spent: &mut Duration) -> Result<()> {
    let Some(source) = catalog::hold(source_no)? else { return Ok(()) };
    let source = located(source)?;
    let done = || changes::delete(source_no, &[filled.change_id]);
    let members = table::members(source.relation)?;
    let Some(member) = members.into_iter().skip(1).find(|member| member.relation == filled.relation) else {
        // It is gone again.
        return done();
    };
    partitions::follow(&source, &member)?;
    if !member.has_rows {
        return done();
    }
    if member.owner != source.role_name || member.has_policies {
        // Another role's code must not be run: its rows are read with all others, through the table.
        catalog::begin_backfill(source_no)?;
        return done();
    }
    let part = Source { relation: member.relation, relation_name: member.name, ..source.clone() };
    let found = time_limit::within(TIME_LIMIT, spent, || {
        rows::after(&part, &filled.after, BACKFILL, asks_published)
    })?;
    let last = found.last().map(|row| row.key.clone()).filter(|_| found.len() == BACKFILL);
    enqueue(&source, names_of(&source, found), Priority::Backfill)?;
    match last {
        Some(last) => changes::set_filled(source_no, filled, &last),
        None => done(),
    }
}

/// The published ones of these rows by tenant and external_id.
fn names_of(source: &Source, rows: Vec<KeyRow>) -> impl Iterator<Item = Name> {
    let name =
        |row: KeyRow| (row.tenant.unwrap_or_else(|| source.tenant_id.clone()), row_key::encode(&row.key));
    rows.into_iter().filter(|row| row.is_published).map(name)
}
