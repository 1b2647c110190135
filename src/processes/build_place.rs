//! How many indexes are built at a time in the whole server: kb.max_index_builds.

use crate::pg::background;
use crate::pg::pidfile::{PidFile, Presence, presence};
use crate::pg::txn;
use crate::settings;
use crate::vectors::hnsw;
use kb_types::error::Result;

/// This file is held during the search for a place, so that the second of two processes sees what the first
/// has taken.
const LOOKING: &str = "index_builds";

fn name(number: i32) -> String {
    format!("index_build_{number}")
}

/// A place, until it is dropped. None: there is none now. An indexer that has built, or drops what was
/// replaced, and waits for transactions of its database to end costs the others nothing, and so is not
/// counted; it keeps its file, and another takes the next number.
pub fn take() -> Result<Option<PidFile>> {
    let Some(_looking) = acquire(LOOKING) else { return Ok(None) };
    // There cannot be more indexers than that.
    let numbers = 0..background::most_processes();
    let (free, held): (Vec<_>, Vec<_>) = numbers
        .map(|number| (number, presence(&name(number))))
        .partition(|(_, presence)| *presence == Presence::Absent);
    // This comes after the look at the files, so that one that is done meanwhile counts as building.
    let waiting = if held.is_empty() { Vec::new() } else { txn::in_txn(hnsw::waiting_builders)? };
    let is_building =
        |presence: &Presence| !matches!(presence, Presence::Running(pid) if waiting.contains(pid));
    let building = held.iter().filter(|(_, presence)| is_building(presence)).count() as i64;
    if building >= i64::from(settings::max_index_builds()) {
        return Ok(None);
    }
    Ok(free.first().and_then(|(number, _)| acquire(&name(*number))))
}

/// A file that cannot be made is treated like one that is held: the caller looks again.
fn acquire(name: &str) -> Option<PidFile> {
    PidFile::acquire(name).ok().flatten()
}
