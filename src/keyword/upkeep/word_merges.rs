//! Merging segments of keyword search: small ones by the worker, so that the indexer is not waited for, large
//! ones by the indexer, so that no document waits for them. One at a time in a database.

use crate::keyword::merge;
use crate::keyword::merge::Merged;
use crate::keyword::{Owner, fold};
use crate::pg::pidfile::{PidFile, Presence, presence};
use crate::pg::{background, latch, report, txn};
use kb_types::error::{Error, Result};
use std::collections::HashSet;
use std::time::Duration;

/// Maximum number of chunks that the worker merges at once, which takes a fraction of a second. Where there
/// are many segments, it merges more (`merge::MANY`).
const LARGE: u64 = 20_000;
const PAUSE: Duration = Duration::from_millis(50);

/// None if another process merges now; the caller does not wait for it here.
fn take_turn() -> Result<Option<PidFile>> {
    let name = format!("words.{}", background::my_database().to_u32());
    if presence(&name) != Presence::Absent {
        return Ok(None);
    }
    let problem = |e| Error::Internal(format!("a pid file for merging cannot be written: {e}"));
    PidFile::acquire(&name).map_err(problem)
}

/// Whose segments may be the indexer's to merge.
pub fn large() -> Result<Vec<Owner>> {
    txn::in_txn(|| merge::large(LARGE))
}

/// Merges small segments as long as there are too many of them; whether more is left for the indexer. By the
/// worker.
pub fn merge_small(owner: &Owner) -> Result<bool> {
    loop {
        let Some(_turn) = take_turn()? else { return Ok(true) };
        match txn::in_txn(|| merge::merge(owner, LARGE))? {
            Merged::Some => report::check_interrupts(),
            left => return Ok(left == Merged::TooLarge),
        }
    }
}

/// Merges all that is to be merged, however large.
pub fn merge_all(owner: &Owner) -> Result<()> {
    loop {
        let merged = take_turn()?.map(|_turn| txn::in_txn(|| merge::merge(owner, u64::MAX))).transpose()?;
        match merged {
            Some(Merged::Some) => report::check_interrupts(),
            Some(_) => return Ok(()),
            None => drop(latch::wait(PAUSE)),
        }
    }
}

/// Merges what is too large for the worker. By the indexer; `failed` are those that it does not try again.
pub fn merge_large(failed: &mut HashSet<Owner>) -> Result<()> {
    for owner in large()? {
        if failed.contains(&owner) {
            continue;
        }
        txn::report_activity(Some(&format!("merging the words of build {}", owner.build_no)));
        let result = merge_all(&owner);
        txn::report_activity(None);
        let Err(error) = result else { continue };
        // Or its knowledge base was dropped meanwhile.
        let gives_way = ["40P01", "57014"].contains(&error.sqlstate())
            || txn::in_txn(|| fold::owner(owner.build_no, &owner.tenant_id))?.is_none();
        if !gives_way {
            report::log(&format!("indexer cannot merge the words of build {}: {error}", owner.build_no));
            failed.insert(owner);
        }
    }
    Ok(())
}
