//! Makes jobs of what the triggers of attached tables wrote down, and of the rows that were there before.

use super::log::Log;
use super::pace::Pace;
use super::row_intake::TIME_LIMIT;
use crate::catalog::source_tables::located;
use crate::error::Result;
use crate::model::states::Priority;
use crate::model::{id, row_key};
use crate::pg::{time_limit, txn};
use crate::store::changes::{self, Changes, What};
use crate::store::jobs::{self, Subject};
use crate::store::row_documents;
use crate::store::sources::{Source, catalog, rows};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Sources, rows of kb.changes of one, and keys that are taken up at once.
const SOURCES: usize = 16;
const ROWS: usize = 64;
const KEYS: usize = 4096;
/// Documents of a truncated table that are deleted at once.
const DELETED: usize = 1000;
/// Rows that were there before, enqueued at once; and how many jobs a knowledge base may have when more are.
const BACKFILL: usize = 1000;
const BACKFILL_BELOW: i64 = 500;
/// How often it is looked for rows that were there before.
const BACKFILL_EVERY: Duration = Duration::from_millis(500);
/// How long a source waits that somebody has locked or that cannot be read: doubled each time, up to the last.
const LATER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

#[derive(Default)]
pub struct SourceChanges {
    /// The last source whose turn it was.
    after: i64,
    backfilled: Pace,
    /// Sources that could not be read: until when they wait, and how often that was so.
    later: HashMap<i64, (Instant, u32)>,
    log: Log,
}

/// A tenant and an external_id.
type Name = (String, String);

impl SourceChanges {
    /// Takes up what waits: each source in its turn; live changes, then rows that were there before.
    pub fn take_up(&mut self) -> Result<()> {
        let mut tried = HashSet::new();
        for _ in 0..SOURCES {
            let Some(source_no) = self.next_source()? else { break };
            if !tried.insert(source_no) {
                break;
            }
            if !self.is_later(source_no) {
                let result = take_up_changes(source_no);
                self.note(source_no, "changed rows", result)?;
            }
        }
        let begun = Instant::now();
        if self.backfilled.is_due(BACKFILL_EVERY, begun) {
            for source_no in txn::in_txn(catalog::backfilling)? {
                if !self.is_later(source_no) {
                    let result = backfill(source_no);
                    self.note(source_no, "rows", result)?;
                }
            }
            self.backfilled.note(begun, Instant::now());
        }
        Ok(())
    }

    fn is_later(&self, source_no: i64) -> bool {
        self.later.get(&source_no).is_some_and(|(until, _)| *until > Instant::now())
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

    /// One source's fault stops no other. It is shown by kb.health(), unless it is only a lock.
    fn note(&mut self, source_no: i64, what: &str, result: Result<()>) -> Result<()> {
        let Err(error) = result else {
            self.later.remove(&source_no);
            return Ok(());
        };
        let times = self.later.get(&source_no).map_or(0, |(_, times)| *times);
        let pause = LATER.0.saturating_mul(1 << times.min(16)).min(LATER.1);
        self.later.insert(source_no, (Instant::now() + pause, times + 1));
        self.log.write(&format!("{what} of source {source_no} wait"), &error);
        if !error.is_lock() {
            let text = match error.hint() {
                Some(hint) => format!("{error} ({hint})"),
                None => error.to_string(),
            };
            txn::in_txn(|| catalog::set_error(source_no, Some(&text)))?;
        }
        Ok(())
    }
}

fn take_up_changes(source_no: i64) -> Result<()> {
    let (source, truncation, found) = txn::in_txn(|| {
        Ok((catalog::find(source_no)?, changes::truncation(source_no)?, changes::oldest(source_no, ROWS)?))
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
                // Some that were deleted may be of rows that came after it.
                catalog::begin_backfill(source_no)?;
            }
            Ok(())
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
        // The trigger could not tell which rows, since a column of the key is gone. Reading any says so.
        finish(&source, &taken, changed, gone)?;
        return txn::in_txn(|| rows::check(&located(source)?));
    }
    let source = match txn::in_txn(|| located(source.clone())) {
        Ok(located) => located,
        // Its rows are gone from answers; what changed cannot be read.
        Err(error) if !error.is_lock() => {
            finish(&source, &taken, BTreeSet::new(), gone)?;
            return Err(error);
        }
        Err(error) => return Err(error),
    };
    let (again, absent) = look_again(&source, gone)?;
    changed.extend(again);
    finish(&source, &taken, changed, absent)
}

/// The rows of kb.changes by tenant and external_id.
fn names(source: &Source, row: Changes) -> impl Iterator<Item = Name> {
    let mut tenants = row.tenants.into_iter();
    let own = source.tenant_id.clone();
    row.keys.into_iter().map(move |key| (tenants.next().unwrap_or_else(|| own.clone()), key))
}

/// Of rows that are said to be gone: those that are to be read again, and those whose documents are deleted. A row that
/// cannot be read is both, so that it is listed.
fn look_again(source: &Source, gone: BTreeSet<Name>) -> Result<(BTreeSet<Name>, BTreeSet<Name>)> {
    if gone.is_empty() {
        return Ok(Default::default());
    }
    let gone: Vec<Name> = gone.into_iter().collect();
    let keys: Vec<Vec<String>> = gone
        .iter()
        .map(|(_, external_id)| row_key::decode(external_id, source.key.len()).unwrap_or_default())
        .collect();
    let existing = |keys: &[Vec<String>]| {
        txn::in_txn(|| time_limit::within(TIME_LIMIT, || rows::existing(source, keys)))
    };
    let (mut there, mut unreadable) = (HashSet::new(), HashSet::new());
    match existing(&keys) {
        Ok(found) => there = found,
        Err(error) if error.is_lock() => return Err(error),
        // One of them cannot be read: the others are looked at one by one.
        Err(_) => {
            for (place, key) in keys.iter().enumerate() {
                match existing(std::slice::from_ref(key)) {
                    Ok(found) => there.extend(found.into_iter().map(|(_, tenant)| (place, tenant))),
                    Err(error) if error.is_lock() => return Err(error),
                    Err(_) => drop(unreadable.insert(place)),
                }
            }
        }
    }
    let (mut again, mut absent) = (BTreeSet::new(), BTreeSet::new());
    for (place, name) in gone.into_iter().enumerate() {
        let is_there = there.contains(&(place, None)) || there.contains(&(place, Some(name.0.clone())));
        if is_there || unreadable.contains(&place) {
            again.insert(name.clone());
        }
        if !is_there {
            absent.insert(name);
        }
    }
    Ok((again, absent))
}

/// Deletes the documents of rows that are gone, and enqueues those that changed, in one commit with the end of the changes.
fn finish(source: &Source, taken: &[Uuid], changed: BTreeSet<Name>, absent: BTreeSet<Name>) -> Result<()> {
    txn::in_txn(|| {
        let (tenants, external_ids): (Vec<String>, Vec<String>) = absent.into_iter().unzip();
        let locked = row_documents::delete_gone(source, &tenants, &external_ids)?;
        if !locked.is_empty() {
            // Somebody has them locked: they stay gone from answers, and are deleted later.
            let pick =
                |texts: &[String]| locked.iter().map(|place| texts[*place].clone()).collect::<Vec<_>>();
            changes::append(source.source_no, What::Gone, &pick(&tenants), &pick(&external_ids))?;
        }
        enqueue(source, changed, Priority::Live)?;
        changes::delete(source.source_no, taken)
    })
}

/// Enqueues rows; not those whose key is too long for an external_id.
fn enqueue(source: &Source, names: impl IntoIterator<Item = Name>, priority: Priority) -> Result<()> {
    let (mut subjects, mut too_long) = (Vec::new(), None);
    for (tenant_id, name) in names {
        match id::problem(&name, id::MAX_EXTERNAL_BYTES).or_else(|| id::tenant_problem(&tenant_id)) {
            Some(problem) => too_long = Some(problem),
            None => subjects.push(Subject { tenant_id, name, source_no: Some(source.source_no) }),
        }
    }
    if !subjects.is_empty() {
        jobs::enqueue(source.kb_no, &subjects, priority, None)?;
    }
    match too_long {
        Some(problem) => catalog::set_error(
            source.source_no,
            Some(&format!("a row cannot become a document: its key or tenant: {problem}")),
        ),
        None => Ok(()),
    }
}

/// Enqueues the next rows that were there before the table was attached.
fn backfill(source_no: i64) -> Result<()> {
    let Some(source) = txn::in_txn(|| catalog::find(source_no))? else { return Ok(()) };
    let Some(after) = source.backfill.clone() else { return Ok(()) };
    if txn::in_txn(|| jobs::waiting(source.kb_no))? >= BACKFILL_BELOW {
        return Ok(());
    }
    let result = txn::in_txn(|| {
        let source = located(source)?;
        let found = time_limit::within(TIME_LIMIT, || rows::after(&source, &after, BACKFILL))?;
        let last = found.last().map(|(_, key)| key.clone()).filter(|_| found.len() == BACKFILL);
        let name = |(tenant, key): (Option<String>, Vec<String>)| {
            (tenant.unwrap_or_else(|| source.tenant_id.clone()), row_key::encode(&key))
        };
        enqueue(&source, found.into_iter().map(name), Priority::Backfill)?;
        catalog::set_backfill(source_no, last.as_deref())?;
        if last.is_none() {
            catalog::set_error(source_no, None)?;
        }
        Ok(())
    });
    match result {
        // It does not pass by itself: nobody must wait for it. Attaching the table again begins anew.
        Err(error) if !error.is_transient() => {
            txn::in_txn(|| catalog::set_backfill(source_no, None))?;
            Err(error)
        }
        result => result,
    }
}
