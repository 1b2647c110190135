//! Whose turn it is: the order in which the launcher visits databases. Pure.

use std::collections::VecDeque;

/// Databases yet to be visited in this round; the next round begins with those left over.
#[derive(Debug, Default)]
pub struct Roster {
    waiting: VecDeque<u32>,
}

impl Roster {
    /// Adds the databases that are there now; those that are gone are forgotten, and those still
    /// waiting from before keep their place, so that none is passed over for ever.
    pub fn begin_round(&mut self, databases: &[u32]) {
        self.waiting.retain(|oid| databases.contains(oid));
        for oid in databases {
            if !self.waiting.contains(oid) {
                self.waiting.push_back(*oid);
            }
        }
    }

    /// The next to visit.
    pub fn take_next(&mut self) -> Option<u32> {
        self.waiting.pop_front()
    }

    /// It could not be visited now: it is the first next time.
    pub fn put_back(&mut self, oid: u32) {
        self.waiting.push_front(oid);
    }

    /// Databases that have their turn now come after all that wait for one.
    pub fn defer(&mut self, has_turn: impl Fn(u32) -> bool) {
        let (served, waiting): (Vec<_>, Vec<_>) = self.waiting.drain(..).partition(|oid| has_turn(*oid));
        self.waiting = waiting.into_iter().chain(served).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_could_not_be_visited_is_first_in_the_next_round() {
        let mut roster = Roster::default();
        roster.begin_round(&[1, 2, 3]);
        assert_eq!(roster.take_next(), Some(1));
        let two = roster.take_next().unwrap();
        roster.put_back(two);
        roster.begin_round(&[1, 2, 3, 4]);
        let order: Vec<u32> = std::iter::from_fn(|| roster.take_next()).collect();
        assert_eq!(order, [2, 3, 1, 4]);
    }

    #[test]
    fn one_that_has_its_turn_comes_after_all_that_wait() {
        let mut roster = Roster::default();
        roster.begin_round(&[1, 2, 3, 4]);
        roster.defer(|oid| oid == 2);
        let order: Vec<u32> = std::iter::from_fn(|| roster.take_next()).collect();
        assert_eq!(order, [1, 3, 4, 2]);
    }

    #[test]
    fn a_dropped_database_is_forgotten() {
        let mut roster = Roster::default();
        roster.begin_round(&[1, 2]);
        roster.begin_round(&[2]);
        assert_eq!(roster.take_next(), Some(2));
        assert_eq!(roster.take_next(), None);
    }
}
