//! Drops the vector tables of builds that are gone. A table that somebody still has locked is waited for
//! briefly and seldom.

use crate::pg::txn;
use crate::upkeep::{LockPause, Log, Upkeep};
use crate::vectors;
use kb_types::error::Result;
use std::time::Instant;

#[derive(Default)]
pub struct UnusedTables {
    pause: LockPause,
    /// Some are left that are worth waiting for.
    are_left: bool,
}

impl Upkeep for UnusedTables {
    fn run(&mut self, log: &mut Log) -> Result<()> {
        self.are_left = self.drop(log)?;
        Ok(())
    }

    fn is_done(&self) -> Result<bool> {
        Ok(!self.are_left)
    }

    /// Whether there are any, and it is worth waiting for them.
    fn is_wanted(&self) -> Result<bool> {
        Ok(self.pause.is_short() && !vectors::unused()?.is_empty())
    }
}

impl UnusedTables {
    /// Drops those that there are; whether some are left that are worth waiting for.
    fn drop(&mut self, log: &mut Log) -> Result<bool> {
        let unused = txn::in_txn(vectors::unused)?;
        if !unused.is_empty() && !self.pause.is_over(Instant::now()) {
            return Ok(self.pause.is_short());
        }
        let mut fault = None;
        for table in unused {
            let Err(error) = txn::in_txn(|| vectors::drop_unused(&table)) else { continue };
            let is_lock = error.is_lock();
            fault = Some((table, error));
            // It is the same for all.
            if is_lock {
                break;
            }
        }
        let Some((table, error)) = fault else {
            self.pause = LockPause::default();
            return Ok(false);
        };
        self.pause.note(Instant::now());
        if !error.is_lock() || !self.pause.is_short() {
            log.write(&format!("unused table {table} stays for now"), &error);
        }
        Ok(self.pause.is_short())
    }
}
