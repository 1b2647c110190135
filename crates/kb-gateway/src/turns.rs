//! The order of service: three classes by urgency, and the clients of a class in turn.
//!
//! Classes are served by priority scheduling with aging, so that no class waits for ever (Silberschatz,
//! Galvin, Gagne: Operating System Concepts, "aging"). Within a class service is round robin over tenants,
//! and over the connections of a tenant, so that neither many requests nor many connections get more than one
//! share.
//!
//! Every scarce resource is allocated in this order: the thread of local models (one piece of a request at a
//! time), requests in flight, and requests and tokens of a rate. A question therefore waits for one batch, or
//! with a local transformer for the group of texts that a thread currently computes, and rarely for two more
//! that have aged. No request holds a part of a rate while it waits for the rest.

use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// The urgency of a request, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Urgency {
    /// A question: one short text.
    Query,
    /// Many or long texts that somebody waits for.
    Bulk,
    Ingest,
}

/// The most bytes of a question. A longer one is a bulk call.
pub const QUESTION: usize = 8 * 1024;

impl Urgency {
    /// The urgency of texts that somebody waits for.
    pub fn of(texts: &[String]) -> Urgency {
        match texts {
            [text] if text.len() <= QUESTION => Urgency::Query,
            _ => Urgency::Bulk,
        }
    }
}

/// A class that was passed over this many times comes next, even if others are more urgent.
pub const PASSED_OVER: u32 = 8;

/// The client for which work is done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Whose {
    /// The oid of the database.
    pub database: u32,
    pub tenant: String,
    /// The number of the connection to the gateway.
    pub connection: u64,
}

/// Waiting items, in the order in which they are served.
pub struct Turns<T> {
    classes: [TurnClass<T>; 3],
}

type Tenants<T> = Ring<(u32, String), Ring<u64, VecDeque<T>>>;

struct TurnClass<T> {
    tenants: Tenants<T>,
    /// The number of items.
    count: usize,
    passed_over: u32,
}

impl<T> TurnClass<T> {
    fn pop(&mut self) -> Option<T> {
        let item = self.tenants.pop();
        self.count -= usize::from(item.is_some());
        item
    }
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        let class = || TurnClass { tenants: Ring::default(), count: 0, passed_over: 0 };
        Turns { classes: [class(), class(), class()] }
    }
}

impl<T> Turns<T> {
    pub fn push(&mut self, urgency: Urgency, whose: &Whose, item: T) {
        let class = &mut self.classes[urgency as usize];
        class.count += 1;
        let connections = class.tenants.of((whose.database, whose.tenant.clone()));
        connections.of(whose.connection).push_back(item);
    }

    pub fn is_empty(&self) -> bool {
        self.classes.iter().all(|class| class.count == 0)
    }

    /// How many questions wait. None if something else waits, too.
    pub fn only_questions(&self) -> Option<usize> {
        let [questions, others @ ..] = &self.classes;
        others.iter().all(|class| class.count == 0).then_some(questions.count)
    }

    /// The next class.
    fn next(&self) -> Option<usize> {
        let waits = |class: &usize| self.classes[*class].count > 0;
        let aged = |class: &usize| self.classes[*class].passed_over >= PASSED_OVER;
        let all = || (0..self.classes.len()).filter(waits);
        all().filter(aged).max_by_key(|class| self.classes[*class].passed_over).or_else(|| all().next())
    }

    pub fn pop(&mut self) -> Option<T> {
        self.pop_if(|_| true)
    }

    /// The next item.
    pub fn peek(&self) -> Option<&T> {
        self.classes[self.next()?].tenants.peek()
    }

    /// Takes the next item, if it is wanted.
    pub fn pop_if(&mut self, is_wanted: impl FnOnce(&T) -> bool) -> Option<T> {
        let next = self.next()?;
        if !is_wanted(self.classes[next].tenants.peek()?) {
            return None;
        }
        for class in &mut self.classes[next + 1..] {
            class.passed_over += u32::from(class.count > 0);
        }
        self.classes[next].passed_over = 0;
        self.classes[next].pop()
    }

    /// Takes the next question, if it is wanted, and never an item of another class.
    pub fn pop_query_if(&mut self, is_wanted: impl FnOnce(&T) -> bool) -> Option<T> {
        let questions = &mut self.classes[Urgency::Query as usize];
        questions.tenants.peek().is_some_and(is_wanted).then(|| questions.pop())?
    }
}

/// A queue with its own order.
trait Discipline: Default {
    type Item;
    fn is_empty(&self) -> bool;
    fn peek(&self) -> Option<&Self::Item>;
    fn pop(&mut self) -> Option<Self::Item>;
}

impl<T> Discipline for VecDeque<T> {
    type Item = T;

    fn is_empty(&self) -> bool {
        VecDeque::is_empty(self)
    }

    fn peek(&self) -> Option<&T> {
        self.front()
    }

    fn pop(&mut self) -> Option<T> {
        self.pop_front()
    }
}

/// Queues that are served in turn. Empty ones are removed.
struct Ring<K, Q> {
    order: VecDeque<K>,
    queues: HashMap<K, Q>,
}

impl<K, Q> Default for Ring<K, Q> {
    fn default() -> Self {
        Ring { order: VecDeque::new(), queues: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash, Q: Discipline> Ring<K, Q> {
    fn of(&mut self, key: K) -> &mut Q {
        if !self.queues.contains_key(&key) {
            self.order.push_back(key.clone());
        }
        self.queues.entry(key).or_default()
    }
}

impl<K: Clone + Eq + Hash, Q: Discipline> Discipline for Ring<K, Q> {
    type Item = Q::Item;

    fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    fn peek(&self) -> Option<&Q::Item> {
        self.queues.get(self.order.front()?)?.peek()
    }

    fn pop(&mut self) -> Option<Q::Item> {
        let key = self.order.pop_front()?;
        let queue = self.queues.get_mut(&key)?;
        let item = queue.pop();
        match queue.is_empty() {
            true => drop(self.queues.remove(&key)),
            false => self.order.push_back(key),
        }
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Urgency::{Bulk, Ingest, Query};

    #[test]
    fn one_short_text_is_a_question_and_all_else_a_bulk_call() {
        assert_eq!(Urgency::of(&["a".repeat(QUESTION)]), Query);
        assert_eq!(Urgency::of(&["a".repeat(QUESTION + 1)]), Bulk);
        assert_eq!(Urgency::of(&["a".into(), "b".into()]), Bulk);
        assert_eq!(Urgency::of(&[]), Bulk);
    }

    fn whose(tenant: &str, connection: u64) -> Whose {
        Whose { database: 1, tenant: tenant.into(), connection }
    }

    fn drain<T>(turns: &mut Turns<T>) -> Vec<T> {
        std::iter::from_fn(|| turns.pop()).collect()
    }

    #[test]
    fn questions_go_ahead_of_bulk_calls_and_these_of_ingestion() {
        let mut turns = Turns::default();
        for (urgency, item) in [(Ingest, "i"), (Bulk, "b"), (Query, "q")] {
            turns.push(urgency, &whose("", 1), item);
        }
        assert_eq!(drain(&mut turns), ["q", "b", "i"]);
    }

    #[test]
    fn clients_of_a_class_take_turns_however_much_each_has() {
        let mut turns = Turns::default();
        for i in 0..4 {
            turns.push(Bulk, &whose("", 1), format!("a{i}"));
        }
        turns.push(Bulk, &whose("", 2), "b0".to_string());
        assert_eq!(drain(&mut turns), ["a0", "b0", "a1", "a2", "a3"]);
    }

    #[test]
    fn a_tenant_with_many_connections_has_one_share() {
        let mut turns = Turns::default();
        for connection in 0..3 {
            turns.push(Bulk, &whose("large", connection), "large");
        }
        for _ in 0..3 {
            turns.push(Bulk, &whose("small", 9), "small");
        }
        assert_eq!(drain(&mut turns), ["large", "small", "large", "small", "large", "small"]);
    }

    #[test]
    fn less_urgent_items_do_not_wait_for_ever() {
        let mut turns = Turns::default();
        for _ in 0..100 {
            turns.push(Query, &whose("", 1), "q");
            turns.push(Bulk, &whose("", 1), "b");
        }
        turns.push(Ingest, &whose("", 1), "i");
        let order = drain(&mut turns);
        let place = |item| order.iter().position(|it| *it == item).unwrap();
        assert_eq!((place("i"), place("b")), (PASSED_OVER as usize, PASSED_OVER as usize + 1));
        // A class that always waits gets no more than its share.
        assert_eq!(order[..20].iter().filter(|item| **item == "q").count(), 17);
    }

    #[test]
    fn questions_are_counted_as_long_as_nothing_else_waits() {
        let mut turns = Turns::default();
        assert_eq!(turns.only_questions(), Some(0));
        for connection in 0..3 {
            turns.push(Query, &whose("", connection), "q");
        }
        turns.pop_query_if(|_| true);
        assert_eq!(turns.only_questions(), Some(2));
        turns.push(Ingest, &whose("", 1), "i");
        assert_eq!(turns.only_questions(), None);
        drain(&mut turns);
        assert_eq!((turns.only_questions(), turns.is_empty()), (Some(0), true));
    }

    #[test]
    fn an_item_that_is_not_wanted_keeps_its_place() {
        let mut turns = Turns::default();
        turns.push(Query, &whose("", 1), 7);
        assert_eq!(turns.pop_if(|item| *item > 7), None);
        assert_eq!(turns.pop_if(|item| *item == 7), Some(7));
        assert!(turns.is_empty());
    }
}
