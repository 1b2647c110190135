//! How many indexes are built at a time in the whole server: kb.max_index_builds.

use crate::pg::background;
use crate::pg::pidfile::{PidFile, Presence, presence};
use crate::pg::txn;
use crate::settings;
use crate::vectors::index;
use kb_types::error::Result;

/// Held while a place is looked for: of two that look at once, the second sees what the first has taken.
const LOOKING: &str = "index_builds";

fn name(number: i32) -> String {
    format!("index_build_{number}")
}

/// A place, until it is dropped. None: there is none now. Who has built, or drops what was replaced, and waits for transactions of
/// its database to end costs the others nothing, and so is not counted; it keeps its file, and another takes the next number.
pub fn take() -> Result<Option<PidFile>> {
    let Some(_looking) = acquire(LOOKING) else { return Ok(None) };
    // There are no more indexers than that.
    let numbers = 0..background::most_processes();
    let (free, held): (Vec<_>, Vec<_>) = numbers
        .map(|number| (number, presence(&name(number))))
        .partition(|(_, presence)| *presence == Presence::Absent);
    // After the files: one that is done meanwhile counts as building.
    let waiting = if held.is_empty() { Vec::new() } else { txn::in_txn(index::waiting_builders)? };
    let is_building =
        |presence: &Presence| !matches!(presence, Presence::Running(pid) if waiting.contains(pid));
    let building = held.iter().filter(|(_, presence)| is_building(presence)).count() as i64;
    if building >= i64::from(settings::max_index_builds()) {
        return Ok(None);
    }
    Ok(free.first().and_then(|(number, _)| acquire(&name(*number))))
}

/// What cannot be made is looked for again, as what is held.
fn acquire(name: &str) -> Option<PidFile> {
    PidFile::acquire(name).ok().flatten()
}
