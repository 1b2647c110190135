//! Drops the vector tables of builds that are gone. Each drop locks kb.chunks for a moment, and whoever still has it locked, such as an
//! idle transaction that has asked a question, is waited for briefly and seldom: meanwhile nobody is answered.

use super::log::Log;
use crate::error::Result;
use crate::pg::txn;
use crate::store::vector_store;
use std::time::{Duration, Instant};

/// The pause after one could not be dropped; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// So often; then the pause stays, and the worker does not stay for it.
const PAUSES: u32 = 6;

#[derive(Default)]
pub struct UnusedTables {
    pauses: u32,
    resume_at: Option<Instant>,
}

impl UnusedTables {
    /// Drops those that there are; whether some are left that are worth waiting for.
    pub fn drop(&mut self, log: &mut Log) -> Result<bool> {
        let unused = txn::in_txn(vector_store::unused)?;
        if unused.is_empty() {
            *self = UnusedTables::default();
            return Ok(false);
        }
        if self.resume_at.is_some_and(|at| at > Instant::now()) {
            return Ok(self.pauses < PAUSES);
        }
        for table in unused {
            if let Err(error) = txn::in_txn(|| vector_store::drop_unused(&table)) {
                log.write(&format!("unused table {table} stays for now"), &error);
                self.resume_at = Some(Instant::now() + FIRST_PAUSE * (1 << self.pauses));
                self.pauses = (self.pauses + 1).min(PAUSES);
                return Ok(self.pauses < PAUSES);
            }
        }
        *self = UnusedTables::default();
        Ok(false)
    }
}
