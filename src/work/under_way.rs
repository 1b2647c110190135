//! Documents under way, and how many things each of them still waits for. Pure.
//!
//! A document is done when it waits for nothing more. It can also end early (a pause, a fault) while a batch
//! that it waits for is still at the gateway, and be claimed again before that comes back. So each time it is
//! claimed it gets a new ticket, and what comes back late counts for the old ticket only.

use std::collections::HashMap;

/// One thing that a document waits for: its id, and the ticket that it had when it began to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hold {
    pub document_id: i64,
    ticket: u64,
}

/// A document that was taken out: nothing is under way for it any more.
#[derive(Debug, PartialEq)]
pub struct Ended<D> {
    pub document_id: i64,
    pub document: D,
    ticket: u64,
}

struct Entry<D> {
    document: D,
    ticket: u64,
    holds: usize,
}

pub struct UnderWay<D> {
    entries: HashMap<i64, Entry<D>>,
    last_ticket: u64,
}

impl<D> Default for UnderWay<D> {
    fn default() -> Self {
        UnderWay { entries: HashMap::new(), last_ticket: 0 }
    }
}

impl<D> UnderWay<D> {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &D> {
        self.entries.values().map(|entry| &entry.document)
    }

    pub fn get(&self, document_id: i64) -> Option<&D> {
        self.entries.get(&document_id).map(|entry| &entry.document)
    }

    /// Forgets every document, but not which tickets were given out.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Begins a document, under a new ticket.
    pub fn add(&mut self, document_id: i64, document: D) {
        self.last_ticket += 1;
        self.entries.insert(document_id, Entry { document, ticket: self.last_ticket, holds: 0 });
    }

    fn entry(&mut self, hold: Hold) -> Option<&mut Entry<D>> {
        self.entries.get_mut(&hold.document_id).filter(|entry| entry.ticket == hold.ticket)
    }

    /// Documents now wait for one thing more.
    pub fn hold(&mut self, documents: impl IntoIterator<Item = i64>) -> Vec<Hold> {
        let mut holds = Vec::new();
        for document_id in documents {
            if let Some(entry) = self.entries.get_mut(&document_id) {
                entry.holds += 1;
                holds.push(Hold { document_id, ticket: entry.ticket });
            }
        }
        holds
    }

    /// Something that documents wait for became two things.
    pub fn hold_again(&mut self, holds: &[Hold]) {
        for hold in holds {
            if let Some(entry) = self.entry(*hold) {
                entry.holds += 1;
            }
        }
    }

    /// Documents wait for one thing less; those that wait for nothing any more are taken out.
    pub fn end_holds(&mut self, holds: impl IntoIterator<Item = Hold>) -> Vec<Ended<D>> {
        let mut ended = Vec::new();
        for hold in holds {
            let Some(entry) = self.entry(hold) else { continue };
            entry.holds = entry.holds.saturating_sub(1);
            if entry.holds == 0 {
                ended.extend(self.take(hold));
            }
        }
        ended
    }

    /// Undoes [`UnderWay::end_holds`]: `ended` are the documents that it took out.
    pub fn put_back(&mut self, holds: &[Hold], ended: impl IntoIterator<Item = Ended<D>>) {
        self.hold_again(holds);
        for Ended { document_id, document, ticket } in ended {
            let count = holds.iter().filter(|hold| **hold == Hold { document_id, ticket }).count();
            // A document that was claimed again meanwhile has another ticket and stays.
            self.entries.entry(document_id).or_insert(Entry { document, ticket, holds: count });
        }
    }

    /// A document, if one of these holds is of its present ticket.
    pub fn held(&mut self, holds: &[Hold], document_id: i64) -> Option<&mut D> {
        let entry = self.entries.get_mut(&document_id)?;
        let is_held = holds.contains(&Hold { document_id, ticket: entry.ticket });
        is_held.then_some(&mut entry.document)
    }

    /// Takes a document out, whatever it still waits for.
    pub fn take(&mut self, hold: Hold) -> Option<Ended<D>> {
        self.entry(hold)?;
        let Entry { document, ticket, .. } = self.entries.remove(&hold.document_id)?;
        Some(Ended { document_id: hold.document_id, document, ticket })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ended: &[Ended<&str>]) -> Vec<i64> {
        ended.iter().map(|ended| ended.document_id).collect()
    }

    #[test]
    fn a_document_ends_when_it_waits_for_nothing_more() {
        let mut under_way = UnderWay::default();
        under_way.add(1, "a");
        under_way.add(2, "b");
        let first = under_way.hold([1, 2, 3]);
        assert_eq!(first.len(), 2, "a document that is not there cannot wait");
        let second = under_way.hold([1]);
        assert_eq!(ids(&under_way.end_holds(first)), [2]);
        under_way.hold_again(&second);
        assert_eq!(ids(&under_way.end_holds(second.clone())), [0; 0]);
        assert_eq!(ids(&under_way.end_holds(second)), [1]);
        assert!(under_way.is_empty());
    }

    #[test]
    fn what_comes_back_late_is_not_of_a_document_that_was_claimed_again() {
        let mut under_way = UnderWay::default();
        under_way.add(1, "before");
        let late = under_way.hold([1]);
        assert!(under_way.take(late[0]).is_some());
        under_way.add(1, "after");
        let hold = under_way.hold([1]);
        assert!(under_way.held(&late, 1).is_none());
        assert!(under_way.take(late[0]).is_none());
        assert!(under_way.end_holds(late).is_empty());
        assert_eq!(under_way.held(&hold, 1), Some(&mut "after"));
        // This holds even if everything was forgotten in between.
        under_way.clear();
        under_way.add(1, "again");
        under_way.hold([1]);
        assert!(under_way.end_holds(hold).is_empty());
    }

    #[test]
    fn ending_holds_can_be_undone() {
        let mut under_way = UnderWay::default();
        under_way.add(1, "a");
        under_way.add(2, "b");
        let holds = under_way.hold([1, 2]);
        let other = under_way.hold([2]);
        let ended = under_way.end_holds(holds.clone());
        assert_eq!(ids(&ended), [1]);
        under_way.put_back(&holds, ended);
        assert_eq!(ids(&under_way.end_holds(other)), [0; 0]);
        let mut ended = ids(&under_way.end_holds(holds));
        ended.sort();
        assert_eq!(ended, [1, 2]);
    }
}
