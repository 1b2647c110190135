//! Whose jobs are claimed next: each of those that wait gets its turn, the one that was served comes last. Pure.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;

/// Somebody's turn, by what identifies it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn<T> {
    pub whose: T,
    /// The job_no up to which its jobs have been looked through: what was claimed leaves dead rows, which an old
    /// snapshot anywhere keeps from being cleaned up.
    pub floor: i64,
}

/// Turns in their order. Nobody has two.
#[derive(Debug)]
pub struct RoundRobin<T> {
    turns: VecDeque<Turn<T>>,
    waiting: HashSet<T>,
}

impl<T> Default for RoundRobin<T> {
    fn default() -> Self {
        RoundRobin { turns: VecDeque::new(), waiting: HashSet::new() }
    }
}

impl<T: Clone + Eq + Hash> RoundRobin<T> {
    pub fn len(&self) -> usize {
        self.turns.len()
    }

    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Adds those that do not wait yet, behind all others.
    pub fn add(&mut self, found: impl IntoIterator<Item = T>) {
        for whose in found {
            if self.waiting.insert(whose.clone()) {
                self.turns.push_back(Turn { whose, floor: 0 });
            }
        }
    }

    /// Takes the first turns of those who `may` have one; the others keep their places.
    pub fn take(&mut self, count: usize, may: impl Fn(&T) -> bool) -> Vec<Turn<T>> {
        let (mut taken, mut left) = (Vec::new(), VecDeque::with_capacity(self.turns.len()));
        for turn in self.turns.drain(..) {
            if taken.len() < count && may(&turn.whose) {
                self.waiting.remove(&turn.whose);
                taken.push(turn);
            } else {
                left.push_back(turn);
            }
        }
        self.turns = left;
        taken
    }

    /// How many wait that `may` have a turn.
    pub fn count(&self, may: impl Fn(&T) -> bool) -> usize {
        self.turns.iter().filter(|turn| may(&turn.whose)).count()
    }

    /// Forgets the others.
    pub fn retain(&mut self, may: impl Fn(&T) -> bool) {
        self.turns.retain(|turn| may(&turn.whose));
        self.waiting.retain(may);
    }

    /// After jobs of the turns `taken` were `claimed` (whose, and job_no), at most `share` of each: who got as many may
    /// have more and comes last. If the claim `is_full`, those that it did not reach come first again. Who has nothing
    /// more waits no longer.
    pub fn give_back(&mut self, taken: Vec<Turn<T>>, claimed: &[(T, i64)], share: usize, is_full: bool) {
        let mut by_turn: HashMap<&T, (usize, i64)> = HashMap::new();
        for (whose, job_no) in claimed {
            let (count, last) = by_turn.entry(whose).or_insert((0, 0));
            *count += 1;
            *last = (*last).max(*job_no);
        }
        let reached = taken.iter().rposition(|turn| by_turn.contains_key(&turn.whose));
        let mut unreached = Vec::new();
        for (i, turn) in taken.into_iter().enumerate() {
            let (count, last) = by_turn.get(&turn.whose).copied().unwrap_or((0, 0));
            if is_full && reached.is_none_or(|reached| i > reached) {
                unreached.push(turn);
            } else if count >= share || (is_full && reached == Some(i)) {
                self.waiting.insert(turn.whose.clone());
                self.turns.push_back(Turn { floor: turn.floor.max(last), ..turn });
            }
        }
        for turn in unreached.into_iter().rev() {
            self.waiting.insert(turn.whose.clone());
            self.turns.push_front(turn);
        }
    }

    /// All jobs are looked through from the beginning again: for those that were given back, and those edited while
    /// they were worked on.
    pub fn start_again(&mut self) {
        self.turns.iter_mut().for_each(|turn| turn.floor = 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(round_robin: &RoundRobin<&'static str>) -> Vec<(&'static str, i64)> {
        round_robin.turns.iter().map(|turn| (turn.whose, turn.floor)).collect()
    }

    #[test]
    fn who_was_served_comes_last_and_who_has_nothing_more_not_at_all() {
        let mut all = RoundRobin::default();
        all.add(["a", "b", "c", "a"]);
        let taken = all.take(2, |_| true);
        all.add(["d"]);
        // Two of a, which may have more, and one of b.
        all.give_back(taken, &[("a", 7), ("b", 9), ("a", 8)], 2, false);
        assert_eq!(order(&all), [("c", 0), ("d", 0), ("a", 8)]);
        all.add(["b", "c"]);
        assert_eq!(order(&all), [("c", 0), ("d", 0), ("a", 8), ("b", 0)]);
        all.start_again();
        assert_eq!(order(&all), [("c", 0), ("d", 0), ("a", 0), ("b", 0)]);
    }

    #[test]
    fn whom_a_full_claim_did_not_reach_keeps_the_place() {
        let mut all = RoundRobin::default();
        all.add(["a", "b", "c", "d", "e"]);
        let taken = all.take(4, |_| true);
        // a had nothing; of b one was claimed, which made the claim full.
        all.give_back(taken, &[("b", 3)], 2, true);
        assert_eq!(order(&all), [("c", 0), ("d", 0), ("e", 0), ("b", 3)]);
        // A claim of nothing at all reaches nobody.
        let taken = all.take(2, |_| true);
        all.give_back(taken, &[], 2, true);
        assert_eq!(order(&all), [("c", 0), ("d", 0), ("e", 0), ("b", 3)]);
    }

    #[test]
    fn who_may_have_no_turn_keeps_the_place() {
        let mut all = RoundRobin::default();
        all.add(["a", "b", "c", "d"]);
        let taken = all.take(2, |whose| *whose != "a");
        assert_eq!(taken.iter().map(|turn| turn.whose).collect::<Vec<_>>(), ["b", "c"]);
        all.give_back(taken, &[("b", 5)], 1, false);
        assert_eq!(order(&all), [("a", 0), ("d", 0), ("b", 5)]);
        assert_eq!((all.count(|whose| *whose != "a"), all.len()), (2, 3));
        all.retain(|whose| *whose != "a");
        all.add(["a", "d"]);
        assert_eq!(order(&all), [("d", 0), ("b", 5), ("a", 0)]);
    }

    #[test]
    fn everybody_gets_as_many_turns_as_anybody() {
        let mut all = RoundRobin::default();
        all.add(0..10);
        let mut served = [0; 10];
        for _ in 0..50 {
            let taken = all.take(3, |_| true);
            let claimed: Vec<(usize, i64)> = taken.iter().map(|turn| (turn.whose, turn.floor + 1)).collect();
            claimed.iter().for_each(|(whose, _)| served[*whose] += 1);
            all.give_back(taken, &claimed, 1, false);
        }
        assert_eq!(served, [15; 10]);
    }
}
