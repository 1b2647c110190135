//! Gives new vector tables their foreign keys. Each locks kb.chunks for a moment against those who write it: an open transaction that has
//! deleted a chunk keeps it from being made. Vectors are written and searched meanwhile; those of chunks that were deleted before the key
//! was there are deleted then.

use super::lock_pause::LockPause;
use super::log::Log;
use crate::error::Result;
use crate::pg::txn;
use crate::store::builds;
use std::collections::HashMap;
use std::time::Instant;
use uuid::Uuid;

/// Vectors that are looked at together for whether they have a chunk.
const SLICE: usize = 5000;

#[derive(Default)]
pub struct TableKeys {
    /// After a lock could not be had, which is the same for all.
    pause: LockPause,
    /// Of builds whose tables cannot have one: somebody has put something else in their place.
    failed: HashMap<i64, LockPause>,
    /// Of builds that have one: up to which chunk vectors without one are deleted.
    cleaned: HashMap<i64, Uuid>,
    log: Log,
}

impl TableKeys {
    /// Adds those that are missing.
    pub fn add(&mut self) -> Result<()> {
        let unkeyed = txn::in_txn(builds::unkeyed)?;
        self.failed.retain(|build_no, _| unkeyed.contains(build_no));
        self.cleaned.retain(|build_no, _| unkeyed.contains(build_no));
        let now = Instant::now();
        if !unkeyed.is_empty() && !self.pause.is_over(now) {
            return Ok(());
        }
        for build_no in unkeyed {
            if self.failed.get(&build_no).is_some_and(|pause| !pause.is_over(now)) {
                continue;
            }
            let from = self.cleaned.get(&build_no).copied().unwrap_or_default();
            let added = txn::in_txn(|| builds::add_key(build_no));
            let cleaned = added.and_then(|()| txn::in_txn(|| builds::delete_orphans(build_no, from, SLICE)));
            let error = match cleaned {
                Ok(last) => {
                    self.cleaned.extend(last.map(|last| (build_no, last)));
                    continue;
                }
                Err(error) => error,
            };
            let pause =
                if error.is_lock() { &mut self.pause } else { self.failed.entry(build_no).or_default() };
            pause.note(now);
            if !error.is_lock() || !pause.is_short() {
                self.log.write(&format!("the table of build {build_no} has no foreign key yet"), &error);
            }
            if error.is_lock() {
                return Ok(());
            }
        }
        self.pause = LockPause::default();
        Ok(())
    }
}
