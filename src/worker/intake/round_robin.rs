//! Whose jobs are claimed next. Groups (tenants) take turns, and within each group its members (knowledge
//! bases); the one that was served last comes last. Pure.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;

/// A member's turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn<T> {
    pub whose: T,
    /// The job_no up to which its jobs have been looked through: what was claimed leaves dead rows, which an
    /// old snapshot anywhere keeps from being cleaned up.
    pub floor: i64,
}

/// Who belongs to a group that gets no more than any other.
pub trait Member: Clone + Eq + Hash {
    fn group(&self) -> &str;
}

/// Turns in their order. No member has two.
#[derive(Debug)]
pub struct RoundRobin<T> {
    turns: VecDeque<Turn<T>>,
    waiting: HashSet<T>,
    /// When each group was served last; a group without an entry was not served since it began to wait.
    served: HashMap<String, u64>,
    clock: u64,
}

impl<T> Default for RoundRobin<T> {
    fn default() -> Self {
        RoundRobin { turns: VecDeque::new(), waiting: HashSet::new(), served: HashMap::new(), clock: 0 }
    }
}

impl<T: Member> RoundRobin<T> {
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

    /// Takes the first turns of those who `may` have one, in the order in which they are to be served: one of
    /// each group, the one first that was not served for longest, then a second one of each. The others keep
    /// their places.
    pub fn take(&mut self, count: usize, may: impl Fn(&T) -> bool) -> Vec<Turn<T>> {
        let mut of_group: HashMap<&str, usize> = HashMap::new();
        let mut order: Vec<(usize, u64, usize)> = Vec::new();
        for (place, turn) in self.turns.iter().enumerate().filter(|(_, turn)| may(&turn.whose)) {
            let round = of_group.entry(turn.whose.group()).or_insert(0);
            order.push((*round, self.served.get(turn.whose.group()).copied().unwrap_or(0), place));
            *round += 1;
        }
        order.sort_unstable();
        order.truncate(count);
        let rank: HashMap<usize, usize> =
            order.iter().enumerate().map(|(i, (_, _, place))| (*place, i)).collect();
        let (mut taken, mut left) = (Vec::with_capacity(order.len()), VecDeque::new());
        for (place, turn) in self.turns.drain(..).enumerate() {
            match rank.get(&place) {
                Some(rank) => taken.push((*rank, turn)),
                None => left.push_back(turn),
            }
        }
        self.turns = left;
        taken.sort_unstable_by_key(|(rank, _)| *rank);
        let taken: Vec<Turn<T>> = taken.into_iter().map(|(_, turn)| turn).collect();
        for turn in &taken {
            self.waiting.remove(&turn.whose);
        }
        taken
    }

    /// The number of waiting members that `may` have a turn.
    pub fn count(&self, may: impl Fn(&T) -> bool) -> usize {
        self.turns.iter().filter(|turn| may(&turn.whose)).count()
    }

    /// Forgets the others.
    pub fn retain(&mut self, may: impl Fn(&T) -> bool) {
        self.turns.retain(|turn| may(&turn.whose));
        self.waiting.retain(may);
    }

    /// Returns the turns `taken` after jobs of theirs were `claimed` (member and job_no), at most `share` of
    /// each. A member that got as many may have more, and comes last. If the claim `is_full`, those that it
    /// did not reach come first again. A member without further jobs waits no longer.
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
            // One that was only begun is the first next time.
            if count > 0 && !(is_full && reached == Some(i) && count < share) {
                self.clock += 1;
                self.served.insert(turn.whose.group().to_string(), self.clock);
            }
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
        if self.served.len() > 2 * self.turns.len() + 64 {
            let waiting: HashSet<&str> = self.turns.iter().map(|turn| turn.whose.group()).collect();
            self.served.retain(|group, _| waiting.contains(group.as_str()));
        }
    }

    /// All jobs are looked through from the beginning again: for those that were given back, and those edited
    /// while they were worked on.
    pub fn start_again(&mut self) {
        self.turns.iter_mut().for_each(|turn| turn.floor = 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A member, whose group is its first letter.
    impl Member for &'static str {
        fn group(&self) -> &str {
            &self[..1]
        }
    }

    fn order(round_robin: &RoundRobin<&'static str>) -> Vec<(&'static str, i64)> {
        round_robin.turns.iter().map(|turn| (turn.whose, turn.floor)).collect()
    }

    fn names(taken: &[Turn<&'static str>]) -> Vec<&'static str> {
        taken.iter().map(|turn| turn.whose).collect()
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
        assert_eq!(names(&taken), ["b", "c"]);
        all.give_back(taken, &[("b", 5)], 1, false);
        assert_eq!(order(&all), [("a", 0), ("d", 0), ("b", 5)]);
        assert_eq!((all.count(|whose| *whose != "a"), all.len()), (2, 3));
        all.retain(|whose| *whose != "a");
        all.add(["a", "d"]);
        assert_eq!(order(&all), [("d", 0), ("b", 5), ("a", 0)]);
    }

    #[test]
    fn groups_get_the_same_however_many_members_they_have() {
        let mut all = RoundRobin::default();
        all.add(["a1", "a2", "a3", "a4", "b1", "c1"]);
        let mut served: HashMap<&str, usize> = HashMap::new();
        for _ in 0..60 {
            // Three jobs a claim, two of each at most: the second one is only begun.
            let taken = all.take(4, |_| true);
            let claimed = [(taken[0].whose, 1), (taken[0].whose, 2), (taken[1].whose, 1)];
            assert_ne!(taken[0].whose.group(), taken[1].whose.group());
            claimed.iter().for_each(|(whose, _)| *served.entry(&whose[..1]).or_default() += 1);
            all.give_back(taken, &claimed, 2, true);
        }
        for group in ["a", "b", "c"] {
            assert!((55..=65).contains(&served[group]), "{served:?}");
        }
        // Within a group, too.
        let firsts: Vec<_> = (0..4)
            .map(|_| {
                let taken = all.take(1, |whose| whose.starts_with('a'));
                let claimed = [(taken[0].whose, 1)];
                all.give_back(taken, &claimed, 1, false);
                claimed[0].0
            })
            .collect();
        assert_eq!(firsts.iter().collect::<HashSet<_>>().len(), 4, "{firsts:?}");
    }
}
