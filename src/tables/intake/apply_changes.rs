//! Makes jobs of what the triggers of attached tables wrote down, and of the rows that were there before.
//!
//! A row that is there again keeps its document only if that is of the row's text (`tables/row_texts.rs`);
//! otherwise the document is deleted, too, and made anew. For partitions that came or went, this part writes
//! down the documents of those that are gone, has the rows of new ones enqueued, and gives triggers to those
//! that have none yet. Then it looks at their rows again.

use super::backfill::{Name, backfill, enqueue, fill};
use super::rests::{Account, End, Rests};
use super::row_intake::{AT_ONCE, TIME_LIMIT};
use super::source_faults::{SourceFaults, told};
use crate::pg::{time_limit, txn};
use crate::tables::changes;
use crate::tables::changes::{Changes, What};
use crate::tables::partitions;
use crate::tables::row_documents;
use crate::tables::row_presence::{RowPresence, presence};
use crate::tables::row_texts;
use crate::tables::source_tables::located;
use crate::tables::sources::rows;
use crate::tables::sources::{Source, catalog};
use crate::tables::sources::{reading_rests, table};
use crate::upkeep::{Log, Pace};
use kb_types::error::{Error, Result};
use kb_types::row_states::Priority;
use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Sources, and keys of one, that are taken up at once.
const SOURCES: usize = 16;
const KEYS: usize = 4096;
/// Documents of a truncated table that are deleted at once.
const DELETED: usize = 1000;
/// How often to look for rows that were there before.
const BACKFILL_EVERY: Duration = Duration::from_millis(500);

#[derive(Default)]
pub struct SourceChanges {
    /// The last source whose turn it was.
    after: i64,
    backfilled: Pace,
    /// Whether the rests that the last worker noted have been read.
    is_resumed: bool,
    faults: SourceFaults,
    log: Log,
}

impl SourceChanges {
    /// Takes up what waits: each source in its turn; live changes, then rows that were there before.
    pub fn take_up(&mut self, rests: &mut Rests) -> Result<()> {
        if !self.is_resumed {
            for (role_name, tenant_id, left) in txn::in_txn(reading_rests::all)? {
                rests.resume(Account { role_name, tenant_id }, left, Instant::now());
            }
            self.is_resumed = true;
        }
        let mut tried = HashSet::new();
        for _ in 0..SOURCES {
            let Some(source_no) = self.next_source()? else { break };
            if !tried.insert(source_no) {
                break;
            }
            self.attend(source_no, "changed rows", rests, |spent| take_up_changes(source_no, spent))?;
        }
        let begun = Instant::now();
        if self.backfilled.is_due(BACKFILL_EVERY, begun) {
            for source_no in txn::in_txn(catalog::backfilling)? {
                let asks_published = !rests.is_one_by_one(source_no);
                let work = |spent: &mut Duration| backfill(source_no, asks_published, spent);
                self.attend(source_no, "rows", rests, work)?;
            }
            for source_no in txn::in_txn(changes::filling)? {
                let asks_published = !rests.is_one_by_one(source_no);
                let work = |spent: &mut Duration| fill(source_no, asks_published, spent);
                self.attend(source_no, "rows of a partition", rests, work)?;
            }
            self.backfilled.note(begun, Instant::now());
        }
        Ok(())
    }

    fn next_source(&mut self) -> Result<Option<i64>> {
        let after = self.after;
        let found = txn::in_txn(|| match changes::next_source(after)? {
            None if after > 0 => changes::next_source(0),
            found => Ok(found),
        })?;
        self.after = found.unwrap_or(0);
        Ok(found)
    }

    /// Does something for a source, unless it rests; it says what time it has spent on reading rows. Its
    /// fault stops no other, and is shown by kb.health() until it is over, unless it is only a lock.
    fn attend(
        &mut self,
        source_no: i64,
        what: &str,
        rests: &mut Rests,
        work: impl FnOnce(&mut Duration) -> Result<()>,
    ) -> Result<()> {
        let account = account(source_no)?;
        if rests.left(source_no, &account, Instant::now()).is_some() {
            return Ok(());
        }
        let mut spent = Duration::ZERO;
        let result = work(&mut spent);
        let end = match &result {
            Err(_) => End::Fault,
            Ok(()) if spent >= TIME_LIMIT => End::OverTime,
            Ok(()) => End::Read,
        };
        // If nothing was read, nothing is known of how long that takes.
        if result.is_err() || !spent.is_zero() {
            note(rests, source_no, &account, spent, end)?;
        }
        let Err(error) = result else {
            return self.faults.end(source_no);
        };
        self.log.write(&format!("{what} of source {source_no} have to wait"), &error);
        if error.is_lock() { Ok(()) } else { self.faults.tell(source_no, &error) }
    }
}

/// The account whose time is spent on reading a source; an empty one if the source is gone.
pub fn account(source_no: i64) -> Result<Account> {
    let found = txn::in_txn(|| catalog::account(source_no))?;
    Ok(found.map(|(role_name, tenant_id)| Account { role_name, tenant_id }).unwrap_or_default())
}

/// Notes how long reading rows of a source took; if it took long, also for the next worker.
pub fn note(rests: &mut Rests, source_no: i64, account: &Account, took: Duration, end: End) -> Result<()> {
    match rests.note(source_no, account, took, Instant::now(), end) {
        Some(rest) => txn::in_txn(|| reading_rests::put(&account.role_name, &account.tenant_id, rest)),
        None => Ok(()),
    }
}

fn take_up_changes(source_no: i64, spent: &mut Duration) -> Result<()> {
    let (source, truncation, found, has_partitions) = txn::in_txn(|| {
        let (source, truncation) = (catalog::find(source_no)?, changes::truncation(source_no)?);
        // The order matters: changes that were recorded with a partition, or after it, must not be taken up
        // before it.
        let found = changes::oldest(source_no)?;
        Ok((source, truncation, found, !changes::of_partitions(source_no)?.0.is_empty()))
    })?;
    let Some(source) = source else {
        // It was detached meanwhile.
        return txn::in_txn(|| changes::delete_all(source_no));
    };
    if let Some(truncation) = truncation {
        return txn::in_txn(|| {
            let deleted = row_documents::delete_some(source_no, DELETED)?;
            if deleted == 0 && !row_documents::any(source_no)? {
                changes::delete(source_no, &[truncation])?;
                if table::locate(&source)?.is_none() {
                    row_documents::delete_jobs(&source)?;
                    catalog::set_partitions(source_no, &[])?;
                }
                // Some of the documents that were deleted may be of rows that were inserted after the
                // truncation.
                catalog::begin_backfill(source_no)?;
            }
            Ok(())
        });
    }
    if has_partitions {
        return txn::in_txn(|| {
            let Some(source) = catalog::hold(source_no)? else { return Ok(()) };
            match located(source) {
                Err(error) if error.is_lock() => Err(error),
                Err(error) => {
                    catalog::set_error(source_no, Some(&told(&error)))?;
                    partitions::take_up(source_no, None)
                }
                Ok(source) => partitions::take_up(source_no, Some(&source)),
            }
        });
    }
    let (mut taken, mut changed, mut gone) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for row in found {
        if taken.is_empty() || changed.len() + gone.len() + row.keys.len() <= KEYS {
            taken.push(row.change_id);
            let into = if row.what == What::Gone { &mut gone } else { &mut changed };
            into.extend(names(&source, row));
        } else {
            break;
        }
    }
    if changed.is_empty() && gone.is_empty() {
        // The trigger could not tell which rows changed, because a column of the key is gone. Reading any row
        // gives that error.
        return match txn::in_txn(|| rows::check(&located(source.clone())?)) {
            Err(error) if error.is_lock() => Err(error),
            checked => finish(&source, &taken, changed, gone, checked.as_ref().err()).and(checked),
        };
    }
    let source = match txn::in_txn(|| located(source.clone())) {
        Ok(located) => located,
        // Its rows are gone from answers; what changed cannot be read.
        Err(error) if !error.is_lock() => {
            finish(&source, &taken, BTreeSet::new(), gone, Some(&error))?;
            return Err(error);
        }
        Err(error) => return Err(error),
    };
    let (again, mut absent) = look_again(&source, gone, spent)?;
    let others = replaced(&source, again.difference(&absent), spent)?;
    absent.extend(others);
    changed.extend(again);
    finish(&source, &taken, changed, absent, None)
}

/// The rows of kb.changes by tenant and external_id.
fn names(source: &Source, row: Changes) -> impl Iterator<Item = Name> {
    let mut tenants = row.tenants.into_iter();
    let own = source.tenant_id.clone();
    row.keys.into_iter().map(move |key| (tenants.next().unwrap_or_else(|| own.clone()), key))
}

/// Of rows that were reported as gone, returns those to be read again and those whose documents are to be
/// deleted. A row that cannot be read is among both, so that it is listed.
fn look_again(
    source: &Source,
    gone: BTreeSet<Name>,
    spent: &mut Duration,
) -> Result<(BTreeSet<Name>, BTreeSet<Name>)> {
    let names: Vec<(&str, &str)> = gone.iter().map(|(tenant, id)| (tenant.as_str(), id.as_str())).collect();
    let found = txn::in_txn(|| time_limit::within(TIME_LIMIT, spent, || presence(source, &names)));
    let RowPresence { absent, unreadable } = match found {
        Err(error) if error.is_lock() => return Err(error),
        // They cannot be read, or not within the limit: they are read one by one, as jobs.
        Err(_) => RowPresence { absent: Vec::new(), unreadable: (0..names.len()).collect() },
        Ok(found) => found,
    };
    let absent: BTreeSet<usize> = absent.into_iter().collect();
    let unreadable: BTreeSet<usize> = unreadable.into_iter().collect();
    let (mut again, mut deleted) = (BTreeSet::new(), BTreeSet::new());
    for (place, name) in gone.into_iter().enumerate() {
        let (is_absent, is_unreadable) = (absent.contains(&place), unreadable.contains(&place));
        if is_absent || is_unreadable {
            deleted.insert(name.clone());
        }
        if !is_absent {
            again.insert(name);
        }
    }
    Ok((again, deleted))
}

/// Of rows that were gone and are there again, returns those whose documents have another text. No answer may
/// show that text any more, so these documents are deleted and made anew; so are those of rows that cannot be
/// read, or not within the limit.
fn replaced<'a>(
    source: &Source,
    again: impl Iterator<Item = &'a Name>,
    spent: &mut Duration,
) -> Result<BTreeSet<Name>> {
    let (names, mut replaced) = (again.collect::<Vec<_>>(), BTreeSet::new());
    let mut of_other_text = |names: &[&Name]| {
        if *spent >= TIME_LIMIT {
            return Ok((0..names.len()).collect());
        }
        txn::in_txn(|| time_limit::within(TIME_LIMIT, spent, || row_texts::of_other_text(source, names)))
    };
    for names in names.chunks(AT_ONCE) {
        match of_other_text(names) {
            Ok(places) => replaced.extend(places.into_iter().map(|place| names[place].clone())),
            Err(error) if error.is_lock() => return Err(error),
            // One of them costs no other its document.
            Err(_) => {
                for name in names {
                    match of_other_text(&[name]) {
                        Ok(places) if places.is_empty() => {}
                        Err(error) if error.is_lock() => return Err(error),
                        _ => drop(replaced.insert((*name).clone())),
                    }
                }
            }
        }
    }
    Ok(replaced)
}

/// Deletes the documents of rows that are gone, enqueues the rows that changed, and deletes the changes, in
/// one commit. The same commit records what is wrong with the source, so that whoever waits for the changes
/// finds it. If some documents are locked, commits the rest and then returns an error: these stay hidden from
/// answers, and are deleted later.
fn finish(
    source: &Source,
    taken: &[Uuid],
    changed: BTreeSet<Name>,
    absent: BTreeSet<Name>,
    fault: Option<&Error>,
) -> Result<()> {
    let is_locked = txn::in_txn(|| {
        // A table that is detached meanwhile must get no more jobs.
        if catalog::hold(source.source_no)?.is_none() {
            return Ok(false);
        }
        let (tenants, external_ids): (Vec<String>, Vec<String>) = absent.into_iter().unzip();
        let locked = row_documents::delete_gone(source, &tenants, &external_ids)?;
        if !locked.is_empty() {
            let pick =
                |texts: &[String]| locked.iter().map(|place| texts[*place].clone()).collect::<Vec<_>>();
            changes::append(source.source_no, What::Gone, &pick(&tenants), &pick(&external_ids))?;
        }
        enqueue(source, changed, Priority::Live)?;
        changes::delete(source.source_no, taken)?;
        if let Some(fault) = fault {
            catalog::set_error(source.source_no, Some(&told(fault)))?;
        }
        Ok(!locked.is_empty())
    })?;
    if is_locked { Err(Error::busy()) } else { Ok(()) }
}
