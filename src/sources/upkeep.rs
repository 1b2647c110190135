//! Starts the runs of sources that have `every` in their configuration. The launcher starts a worker in each
//! database now and then, which finds them.

use super::sql::catalog;
use super::start_runs;
use crate::pg::txn;
use crate::upkeep::{Log, Upkeep};
use kb_types::error::Result;

#[derive(Default)]
pub struct Schedule {
    has_moved: bool,
}

impl Upkeep for Schedule {
    fn run(&mut self, _log: &mut Log) -> Result<()> {
        if txn::in_txn(catalog::any_due)? {
            self.has_moved |= txn::in_txn(start_runs::due)?;
        }
        Ok(())
    }

    fn is_wanted(&self) -> Result<bool> {
        catalog::any_due()
    }

    fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.has_moved)
    }
}
