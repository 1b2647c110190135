//! A suffix automaton (Blumer et al. 1985) over words represented by numbers. For each place of another text
//! it finds the longest run of words ending there that occurs in the text, in time linear in both.

use std::collections::HashMap;

struct State {
    /// The number of words of its longest run.
    length: u32,
    /// The state of the longest suffix that belongs to another state.
    link: Option<u32>,
    /// Where a run of this state first ends: the place of its last word.
    first_end: u32,
    /// The last of its transitions in [`Automaton::words`].
    last_word: Option<u32>,
}

pub struct Automaton {
    states: Vec<State>,
    transitions: HashMap<(u32, u32), u32>,
    /// The words of transitions, each linked to the previous one of the same state, so that all lists share
    /// one allocation.
    words: Vec<(u32, Option<u32>)>,
}

/// The longest run ending at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Longest {
    pub words: usize,
    /// Its first occurrence in the text: the place after its last word, or 0 where there is none.
    pub end: usize,
}

impl Automaton {
    pub fn of(text: &[u32]) -> Automaton {
        let root = State { length: 0, link: None, first_end: 0, last_word: None };
        let mut automaton = Automaton { states: vec![root], transitions: HashMap::new(), words: Vec::new() };
        let mut last = 0;
        for (place, word) in (0..).zip(text) {
            last = automaton.extend(last, *word, place);
        }
        automaton
    }

    fn go(&self, state: u32, word: u32) -> Option<u32> {
        self.transitions.get(&(state, word)).copied()
    }

    fn set(&mut self, state: u32, word: u32, to: u32) {
        if self.transitions.insert((state, word), to).is_none() {
            let before = self.states[state as usize].last_word.replace(self.words.len() as u32);
            self.words.push((word, before));
        }
    }

    fn add(&mut self, state: State) -> u32 {
        self.states.push(state);
        self.states.len() as u32 - 1
    }

    fn extend(&mut self, last: u32, word: u32, place: u32) -> u32 {
        let length = self.states[last as usize].length + 1;
        let new = self.add(State { length, link: Some(0), first_end: place, last_word: None });
        let mut from = Some(last);
        while let Some(state) = from.filter(|state| self.go(*state, word).is_none()) {
            self.set(state, word, new);
            from = self.states[state as usize].link;
        }
        let Some(state) = from else { return new };
        let Some(to) = self.go(state, word) else { return new };
        let length = self.states[state as usize].length + 1;
        if self.states[to as usize].length == length {
            self.states[new as usize].link = Some(to);
            return new;
        }
        // Longer runs of `to` keep the state, and the others get a copy. Transitions are never removed, so
        // all copies together are no more than the final number: at most three times the words.
        let State { link, first_end, .. } = self.states[to as usize];
        let mut next = self.states[to as usize].last_word;
        let copy = self.add(State { length, link, first_end, last_word: None });
        while let Some((word, before)) = next.map(|place| self.words[place as usize]) {
            next = before;
            if let Some(target) = self.go(to, word) {
                self.set(copy, word, target);
            }
        }
        let mut from = Some(state);
        while let Some(state) = from.filter(|state| self.go(*state, word) == Some(to)) {
            self.set(state, word, copy);
            from = self.states[state as usize].link;
        }
        self.states[to as usize].link = Some(copy);
        self.states[new as usize].link = Some(copy);
        new
    }

    /// For each place of `other`, the longest run that ends there.
    pub fn longest(&self, other: &[u32]) -> Vec<Longest> {
        let (mut state, mut words) = (0u32, 0usize);
        let at = |word: &u32| {
            loop {
                if let Some(next) = self.go(state, *word) {
                    (state, words) = (next, words + 1);
                    break;
                }
                match self.states[state as usize].link {
                    Some(link) => (state, words) = (link, self.states[link as usize].length as usize),
                    None => break,
                }
            }
            match words {
                0 => Longest::default(),
                _ => Longest { words, end: self.states[state as usize].first_end as usize + 1 },
            }
        };
        other.iter().map(at).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same by direct comparison.
    fn plain(text: &[u32], other: &[u32]) -> Vec<Longest> {
        let longest = |end: usize| {
            let runs = (0..=end).filter_map(|start| {
                let run = &other[start..=end];
                let at = text.windows(run.len()).position(|window| window == run)?;
                Some(Longest { words: run.len(), end: at + run.len() })
            });
            runs.max_by_key(|longest| longest.words).unwrap_or_default()
        };
        (0..other.len()).map(longest).collect()
    }

    #[test]
    fn it_finds_the_longest_run_at_every_place_and_where_it_is_first() {
        let mut random = fastrand::Rng::with_seed(7);
        for round in 0..300 {
            let words = 1 + random.u32(..4);
            let text: Vec<u32> = (0..random.u32(..30)).map(|_| random.u32(..words)).collect();
            let other: Vec<u32> = (0..random.u32(..30)).map(|_| random.u32(..=words)).collect();
            assert_eq!(
                Automaton::of(&text).longest(&other),
                plain(&text, &other),
                "{round}: {text:?} {other:?}"
            );
        }
    }

    #[test]
    fn it_has_at_most_two_states_and_three_transitions_for_each_word() {
        let many = 100_000u32;
        let texts: [Vec<u32>; 4] = [
            vec![0; many as usize],
            (0..many).collect(),
            (0..many).map(|i| i % 2).collect(),
            // The text with the most states: a b b b …
            (0..many).map(|i| u32::from(i > 0)).collect(),
        ];
        for text in texts {
            let automaton = Automaton::of(&text);
            assert!(
                automaton.states.len() <= 2 * text.len() && automaton.transitions.len() <= 3 * text.len()
            );
        }
    }
}
