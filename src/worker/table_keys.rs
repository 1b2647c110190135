//! Gives new vector tables their foreign keys, before a vector is written to them. Each locks kb.chunks for a moment against those who
//! write it.

use super::lock_pause::LockPause;
use super::log::Log;
use crate::error::Result;
use crate::pg::txn;
use crate::store::builds;
use std::collections::HashMap;
use std::time::Instant;

#[derive(Default)]
pub struct TableKeys {
    /// After a lock could not be had, which is the same for all.
    pause: LockPause,
    /// Of builds whose tables cannot have one: somebody has put something else in their place.
    failed: HashMap<i64, LockPause>,
    log: Log,
}

impl TableKeys {
    /// Adds those that are missing. Documents of a build whose table has none yet wait.
    pub fn add(&mut self) -> Result<()> {
        let unkeyed = txn::in_txn(builds::unkeyed)?;
        self.failed.retain(|build_no, _| unkeyed.contains(build_no));
        let now = Instant::now();
        if !unkeyed.is_empty() && !self.pause.is_over(now) {
            return Ok(());
        }
        for build_no in unkeyed {
            if self.failed.get(&build_no).is_some_and(|pause| !pause.is_over(now)) {
                continue;
            }
            let Err(error) = txn::in_txn(|| builds::add_key(build_no)) else { continue };
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
