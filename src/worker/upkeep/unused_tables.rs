//! Drops the vector tables of builds that are gone. Whoever still has one locked is waited for briefly and seldom.

use crate::pg::txn;
use crate::vectors;
use crate::worker::lock_pause::LockPause;
use crate::worker::log::Log;
use kb_types::error::Result;
use std::time::Instant;

#[derive(Default)]
pub struct UnusedTables {
    pause: LockPause,
}

impl UnusedTables {
    /// Whether there are any, and it is worth waiting for them.
    pub fn any(&self) -> Result<bool> {
        Ok(self.pause.is_short() && !vectors::unused()?.is_empty())
    }

    /// Drops those that there are; whether some are left that are worth waiting for.
    pub fn drop(&mut self, log: &mut Log) -> Result<bool> {
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
