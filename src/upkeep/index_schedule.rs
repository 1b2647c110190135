//! What may want work of the indexer (vector tables, keys of metadata, segments of keyword search), and when
//! that is looked at again whose work was not done. Pure.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// The pause after an index was asked for, and the longest one: it doubles each time.
const FIRST: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(600);

#[derive(Default)]
struct ScheduledIndex {
    /// It is to be looked at: it got vectors, say.
    is_due: bool,
    /// How often it had to pause.
    pauses: u32,
    resume_at: Option<Instant>,
}

/// The number of failures after which the worker no longer stays for an index, though it is tried again.
const HOPELESS: u32 = 4;

/// Tables by what identifies them: those that got vectors, and those whose index was asked for and is not
/// there.
pub struct IndexSchedule<T>(HashMap<T, ScheduledIndex>);

impl<T> Default for IndexSchedule<T> {
    fn default() -> Self {
        IndexSchedule(HashMap::new())
    }
}

impl<T: Clone + Eq + Hash> IndexSchedule<T> {
    /// A table may want an index: it got vectors, say.
    pub fn note(&mut self, table: &T) {
        match self.0.get_mut(table) {
            Some(entry) => entry.is_due = true,
            None => drop(
                self.0.insert(table.clone(), ScheduledIndex { is_due: true, ..ScheduledIndex::default() }),
            ),
        }
    }

    /// The tables to be looked at now.
    pub fn due(&self, now: Instant) -> Vec<T> {
        let is_due = |entry: &ScheduledIndex| entry.is_due && entry.resume_at.is_none_or(|at| at <= now);
        self.0.iter().filter(|(_, entry)| is_due(entry)).map(|(table, _)| table.clone()).collect()
    }

    /// Forgets all others: they have their index, or want none.
    pub fn keep(&mut self, is_kept: impl Fn(&T) -> bool) {
        self.0.retain(|table, _| is_kept(table));
    }

    pub fn knows(&self, table: &T) -> bool {
        self.0.contains_key(table)
    }

    /// Whether an index of this one is likely to be there soon: it was not asked for in vain time and again.
    pub fn is_hopeful(&self, table: &T) -> bool {
        self.0.get(table).is_none_or(|entry| entry.pauses < HOPELESS)
    }

    /// A table has its index, or is gone.
    pub fn forget(&mut self, table: &T) {
        self.0.remove(table);
    }

    /// A table wants no index before it gets more vectors.
    pub fn settle(&mut self, table: &T) {
        match self.0.get_mut(table) {
            Some(entry) if entry.pauses > 0 => entry.is_due = false,
            _ => self.forget(table),
        }
    }

    /// Somebody builds a table's index now. If that fails, the table is looked at again after a pause, and
    /// only if it got more vectors.
    pub fn note_asked(&mut self, table: &T, now: Instant) {
        self.pause(table, now).is_due = false;
    }

    /// A table could not be looked at: it is looked at again after a pause, even if it gets no more vectors.
    pub fn put_off(&mut self, table: &T, now: Instant) {
        self.pause(table, now).is_due = true;
    }

    fn pause(&mut self, table: &T, now: Instant) -> &mut ScheduledIndex {
        let entry = self.0.entry(table.clone()).or_default();
        let pause = FIRST.saturating_mul(1 << entry.pauses.min(16)).min(LONGEST);
        entry.pauses += 1;
        entry.resume_at = Some(now + pause);
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_due_once_for_all_vectors_that_it_got() {
        let (mut schedule, now) = (IndexSchedule::default(), Instant::now());
        schedule.note(&"a");
        schedule.note(&"a");
        assert_eq!(schedule.due(now), ["a"]);
        schedule.settle(&"a");
        assert_eq!(schedule.due(now), [""; 0]);
        schedule.note(&"b");
        assert_eq!(schedule.due(now), ["b"]);
        schedule.note(&"a");
        schedule.forget(&"b");
        assert_eq!(schedule.due(now), ["a"]);
    }

    #[test]
    fn the_pause_of_an_index_that_is_not_built_doubles_up_to_ten_minutes() {
        let (mut schedule, mut now) = (IndexSchedule::default(), Instant::now());
        for pause in [2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600] {
            schedule.note_asked(&"a", now);
            assert_eq!(schedule.due(now + LONGEST), [""; 0], "it got no vectors since");
            schedule.note(&"a");
            now += Duration::from_secs(pause);
            assert_eq!(schedule.due(now - Duration::from_millis(1)), [""; 0], "{pause} s");
            assert_eq!(schedule.due(now), ["a"], "{pause} s");
        }
        // Each table has its own pause, which ends with its index.
        schedule.note_asked(&"a", now);
        schedule.note(&"b");
        schedule.note(&"a");
        assert_eq!(schedule.due(now), ["b"]);
        schedule.forget(&"a");
        schedule.note(&"a");
        schedule.settle(&"b");
        assert_eq!(schedule.due(now), ["a"]);
    }

    #[test]
    fn a_table_that_cannot_be_looked_at_is_due_again_after_pauses_that_double() {
        let (mut schedule, mut now) = (IndexSchedule::default(), Instant::now());
        schedule.note(&"a");
        for pause in [2, 4, 8] {
            schedule.put_off(&"a", now);
            now += Duration::from_secs(pause);
            assert_eq!(schedule.due(now - Duration::from_millis(1)), [""; 0], "{pause} s");
            assert_eq!(schedule.due(now), ["a"], "{pause} s");
        }
    }

    #[test]
    fn a_built_index_is_asked_for_again_at_once_and_one_that_fails_is_given_up() {
        let (mut schedule, mut now) = (IndexSchedule::default(), Instant::now());
        schedule.note_asked(&"built", now);
        schedule.note_asked(&"fails", now);
        schedule.keep(|table| *table == "fails");
        assert!(!schedule.knows(&"built") && schedule.knows(&"fails"));
        schedule.note(&"built");
        schedule.note(&"fails");
        assert_eq!(schedule.due(now), ["built"]);
        for _ in 1..HOPELESS {
            assert!(schedule.is_hopeful(&"fails"));
            now += LONGEST;
            schedule.note_asked(&"fails", now);
        }
        assert!(!schedule.is_hopeful(&"fails") && schedule.is_hopeful(&"built"));
    }

    #[test]
    fn only_tables_that_are_due_or_had_to_pause_are_remembered() {
        let (mut schedule, now) = (IndexSchedule::default(), Instant::now());
        for table in ["a", "b", "c"] {
            schedule.note(&table);
        }
        schedule.settle(&"a");
        schedule.note_asked(&"b", now);
        schedule.settle(&"b");
        schedule.forget(&"c");
        schedule.settle(&"never noted");
        assert_eq!(schedule.0.into_keys().collect::<Vec<_>>(), ["b"]);
    }
}
