//! The contract for what the worker does besides jobs, and the pauses after work that could not be done.
//!
//! A room implements [`Upkeep`] in its `upkeep.rs` or folder `upkeep/`, and `worker/kinds.rs` lists it. An
//! upkeep is run at most every two seconds while documents are under way, and more often when the worker is
//! idle.

mod index_schedule;
mod lock_pause;
mod log;
mod pace;

pub use index_schedule::IndexSchedule;
pub use lock_pause::LockPause;
pub use log::Log;
pub use pace::Pace;

use kb_types::error::Result;

/// Something that the worker does beside jobs. It begins and ends transactions itself.
pub trait Upkeep {
    /// Repairs, before a worker that starts does anything else, what a restart or a restore left behind.
    fn begin(&mut self, _log: &mut Log) {}

    /// Does what is due. After an error the rest of the list is not run in this round.
    fn run(&mut self, log: &mut Log) -> Result<()>;

    /// Whether nothing is left that the worker would have to stay for. In a transaction, after
    /// [`Upkeep::run`].
    fn is_done(&self) -> Result<bool> {
        Ok(true)
    }

    /// Whether something came up that no worker has seen, so that one that is leaving stays. In a
    /// transaction.
    fn is_wanted(&self) -> Result<bool> {
        Ok(false)
    }

    /// Whether it waits for something outside the database that it would have to ask for again.
    fn is_under_way(&self) -> bool {
        false
    }

    /// Whether it did something since this was last asked after which more is likely to come: an idle worker
    /// stays as long as after a document.
    fn take_moved(&mut self) -> bool {
        false
    }

    /// Does what must not be lost, before the worker leaves.
    fn end(&mut self, _log: &mut Log) {}
}
