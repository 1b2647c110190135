//! Keeps the segments of keyword search few: folds chunks that wait into one, and merges them or has them
//! merged.

use super::word_merges::{large, merge_all, merge_small};
use crate::builds::builds;
use crate::keyword::{Owner, fold};
use crate::pg::{report, txn, wake};
use crate::upkeep::{IndexSchedule, Log, Upkeep};
use kb_types::error::Result;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// So many chunks of a build and tenant are folded; fewer are quickly looked at one by one.
const FOLD_AT: i64 = 256;
/// How often it looks for new ones.
const EVERY: Duration = Duration::from_secs(1);
/// How often it counts all of them, at least: a transaction that took its numbers long ago may have committed
/// since.
const COUNT_EVERY: Duration = Duration::from_secs(60);
/// Counting takes at most this share of the worker's time.
const COUNT_SHARE: u32 = 100;

/// Whose chunks: a build and a tenant.
type Whose = (i64, String);

#[derive(Default)]
pub struct KeywordIndex {
    /// How many wait.
    waiting: HashMap<Whose, i64>,
    /// Those whose segments the indexer may have to merge.
    large: IndexSchedule<Owner>,
    /// The last number that was counted.
    last: i64,
    looked_at: Option<Instant>,
    count_again_at: Option<Instant>,
}

impl Upkeep for KeywordIndex {
    fn run(&mut self, log: &mut Log) -> Result<()> {
        if self.looked_at.is_some_and(|at| at.elapsed() < EVERY) {
            return Ok(());
        }
        self.count()?;
        self.looked_at = Some(Instant::now());
        let due: Vec<Whose> = self
            .waiting
            .iter()
            .filter(|(_, waiting)| **waiting >= FOLD_AT)
            .map(|(whose, _)| whose.clone())
            .collect();
        for whose in due {
            self.waiting.remove(&whose);
            // It is counted again.
            match work(&whose) {
                Ok(Some((owner, true))) => self.large.note(&owner),
                Ok(Some((owner, false))) => self.large.forget(&owner),
                Ok(None) => {}
                // It was dropped meanwhile.
                Err(_) if matches!(txn::in_txn(|| builds::is_there(whose.0)), Ok(false)) => {}
                Err(error) => {
                    log.write(&format!("worker cannot index words of build {} now", whose.0), &error);
                    self.count_again_at = None;
                }
            }
        }
        self.have_large_merged(log);
        Ok(())
    }
}

impl KeywordIndex {
    /// Starts the indexer if segments are left to it. One that runs looks for them itself; what it leaves, by
    /// a fault or because it did not see it any more, it is asked for again after a pause.
    fn have_large_merged(&mut self, log: &mut Log) {
        let now = Instant::now();
        let due = self.large.due(now);
        if due.is_empty() || wake::indexer_runs() {
            return;
        }
        let mut is_asked = None;
        for owner in due {
            let merged = merge_small(&owner).and_then(|is_left| match is_left {
                // Once for all of them.
                true if *is_asked.get_or_insert_with(|| wake::start_indexer(&[])) => Ok(false),
                // There is no process for it.
                true => merge_all(&owner).map(|()| true),
                false => Ok(true),
            });
            match merged {
                Ok(true) => self.large.forget(&owner),
                Ok(false) => self.large.note_asked(&owner, now),
                Err(error) => {
                    log.write(&format!("worker cannot merge words of build {} now", owner.build_no), &error);
                    self.large.put_off(&owner, now);
                }
            }
        }
    }

    fn count(&mut self) -> Result<()> {
        let begun = Instant::now();
        let is_all = self.count_again_at.is_none_or(|at| at <= begun);
        if is_all {
            txn::in_txn(fold::delete_of_gone)?;
            // This finds what a process was about to merge when it was killed.
            large()?.iter().for_each(|owner| self.large.note(owner));
            self.waiting.clear();
            self.last = 0;
        }
        for (build_no, tenant_id, chunks, last) in txn::in_txn(|| fold::waiting(self.last))? {
            *self.waiting.entry((build_no, tenant_id)).or_default() += chunks;
            self.last = self.last.max(last);
        }
        if is_all {
            self.count_again_at = Some(Instant::now() + COUNT_EVERY.max(begun.elapsed() * COUNT_SHARE));
        }
        Ok(())
    }
}

/// Folds what waits, then merges small segments as long as there are too many: each in a transaction of its
/// own. Whose they are, and whether more is left to the indexer.
fn work((build_no, tenant_id): &Whose) -> Result<Option<(Owner, bool)>> {
    let Some(owner) = txn::in_txn(|| fold::owner(*build_no, tenant_id))? else { return Ok(None) };
    while txn::in_txn(|| fold::fold(&owner))? {
        report::check_interrupts();
    }
    let is_left = merge_small(&owner)?;
    Ok(Some((owner, is_left)))
}
