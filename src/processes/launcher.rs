//! The launcher (with shared_preload_libraries only): starts a worker in every database in turn, which
//! leaves at once where nothing waits. So pending jobs are taken up after a restart, too, and in
//! databases that nobody has touched since.
//!
//! More databases can have work than there are process slots. Then the launcher puts the database for which
//! it found no slot first in its next round, and leaves a mark (`wake::say_slots_short`), as a commit that
//! finds no slot does. While the mark is there, rounds follow each other after a second, only the launcher
//! starts workers, and a worker leaves after its turn. A round in which no database waits removes the mark.
//! Without preload there is neither a launcher nor a mark.

use super::roster::Roster;
use crate::pg::background::{self, Process};
use crate::pg::pidfile::{Presence, presence};
use crate::pg::{latch, report, txn, wake};
use crate::settings;
use pgrx::pg_sys;
use std::time::{Duration, Instant};

/// Pause between two visits, and before a slot is asked for again.
const PAUSE: Duration = Duration::from_millis(200);
/// Pause between rounds while databases wait for a slot.
const SHORT_NAP: Duration = Duration::from_secs(1);

pub fn main() {
    background::start();
    background::connect(pg_sys::InvalidOid);
    if background::in_binary_upgrade() {
        background::exit(0);
    }
    let mut roster = Roster::default();
    // Whether the log says already that slots are short.
    let mut said = false;
    clear_short();
    loop {
        let round = Instant::now();
        match txn::in_txn(|| Ok(background::databases())) {
            Ok(oids) => roster.begin_round(&oids.iter().map(|oid| oid.to_u32()).collect::<Vec<_>>()),
            Err(error) => report::log(&format!("launcher cannot list databases: {error}")),
        }
        let mut short = false;
        while let Some(oid) = roster.take_next() {
            if !is_served(oid) && !background::register_dynamic(Process::Worker, pg_sys::Oid::from(oid)) {
                // No slot is free (max_worker_processes): this one is first when one is.
                roster.put_back(oid);
                roster.defer(is_served);
                short = true;
                break;
            }
            pause(PAUSE);
        }
        if short && !std::mem::replace(&mut said, true) {
            report::log(
                "no background worker slot is free (max_worker_processes): databases are served in turn",
            );
        }
        if short {
            wake::say_slots_short();
        } else {
            said = false;
            clear_short();
        }
        let nap = if short { SHORT_NAP } else { settings::launcher_naptime() };
        // A commit that found no slot for its database says so, too.
        while round.elapsed() < nap && (short || !wake::slots_are_short()) {
            pause(nap.saturating_sub(round.elapsed()).min(SHORT_NAP));
        }
    }
}

fn is_served(oid: u32) -> bool {
    presence(&wake::worker_name(pg_sys::Oid::from(oid))) != Presence::Absent
}

/// No database waits for a slot any more: workers need not make room.
fn clear_short() {
    if let Err(e) = wake::clear_slots_short() {
        report::log(&format!("launcher cannot tell that process slots are free again: {e}"));
    }
}

fn pause(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        latch::wait(time.saturating_sub(begun.elapsed()));
        report::check_interrupts();
        background::reload_settings();
    }
}
