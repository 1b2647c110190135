//! Counts recurring events, so that the server's log reports each kind at most once a minute, with its count.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// How often each kind of event is reported.
pub const EVERY: Duration = Duration::from_secs(60);
/// The most kinds that are counted. Further kinds are not reported.
const KINDS: usize = 10_000;

pub struct Tally<K> {
    kinds: HashMap<K, Count>,
}

#[derive(Default)]
struct Count {
    /// How many events there were since the last report.
    number: u64,
    said: Option<Instant>,
}

impl<K> Default for Tally<K> {
    fn default() -> Tally<K> {
        Tally { kinds: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash> Tally<K> {
    pub fn count(&mut self, kind: K) {
        if self.kinds.len() < KINDS || self.kinds.contains_key(&kind) {
            self.kinds.entry(kind).or_default().number += 1;
        }
    }

    /// The kinds that are to be reported now, with their counts since the last report. A new kind is reported
    /// at once, and the same kind again after [`EVERY`].
    pub fn due(&mut self, now: Instant) -> Vec<(K, u64)> {
        let is_over = |count: &Count| count.said.is_none_or(|at| now.saturating_duration_since(at) >= EVERY);
        self.kinds.retain(|_, count| count.number > 0 || !is_over(count));
        let due = self.kinds.iter_mut().filter(|(_, count)| count.number > 0 && is_over(count));
        due.map(|(kind, count)| {
            count.said = Some(now);
            (kind.clone(), std::mem::take(&mut count.number))
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_reported_at_once_and_then_once_a_minute_with_its_count() {
        let (mut tally, start) = (Tally::default(), Instant::now());
        let mut said = Vec::new();
        for second in 0..150 {
            // One event of one kind each second, and at the start three of another kind.
            (0..if second == 0 { 3 } else { 0 }).for_each(|_| tally.count("other"));
            if second < 100 {
                tally.count("kind");
            }
            let due = tally.due(start + Duration::from_secs(second));
            said.extend(due.into_iter().map(|(kind, number)| (second, kind, number)));
        }
        said.sort_unstable();
        assert_eq!(said, [(0, "kind", 1), (0, "other", 3), (60, "kind", 60), (120, "kind", 39)]);
        // A kind that was reported long ago is forgotten.
        tally.due(start + Duration::from_secs(300));
        assert_eq!(tally.kinds.len(), 0);
    }
}
