//! Who comes next: three classes in order of urgency, and the clients of a class by turns.
//!
//! Between classes: priority scheduling with aging, so that no class waits for ever (Silberschatz, Galvin, Gagne:
//! Operating System Concepts, "aging"). Within a class: round robin over tenants, and over the connections of a tenant,
//! so that neither many requests nor many connections bring more than one share.

use crate::sync::lock;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;

/// How long somebody can wait, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Urgency {
    /// A question: one short text.
    Query,
    /// Many or long texts that somebody waits for.
    Bulk,
    Ingest,
}

/// Bytes of a question at most; a longer one is a bulk call.
pub const QUESTION: usize = 8 * 1024;

impl Urgency {
    /// Of texts that somebody waits for.
    pub fn of(texts: &[String]) -> Urgency {
        match texts {
            [text] if text.len() <= QUESTION => Urgency::Query,
            _ => Urgency::Bulk,
        }
    }
}

/// A class that was passed over so often comes next, whatever is more urgent.
pub const PASSED_OVER: u32 = 8;

/// Who some work is for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Whose {
    /// Oid of the database.
    pub database: u32,
    pub tenant: String,
    /// Number of the connection to the gateway.
    pub connection: u64,
}

/// What waits, in the order in which it is served.
pub struct Turns<T> {
    classes: [Class<T>; 3],
}

type Tenants<T> = Ring<(u32, String), Ring<u64, VecDeque<T>>>;

struct Class<T> {
    tenants: Tenants<T>,
    passed_over: u32,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        let class = || Class { tenants: Ring::default(), passed_over: 0 };
        Turns { classes: [class(), class(), class()] }
    }
}

impl<T> Turns<T> {
    pub fn push(&mut self, urgency: Urgency, whose: &Whose, item: T) {
        let tenants = &mut self.classes[urgency as usize].tenants;
        let connections = tenants.of((whose.database, whose.tenant.clone()));
        connections.of(whose.connection).push_back(item);
    }

    pub fn is_empty(&self) -> bool {
        self.classes.iter().all(|class| class.tenants.is_empty())
    }

    /// The class that comes next.
    fn next(&self) -> Option<usize> {
        let waits = |class: &usize| !self.classes[*class].tenants.is_empty();
        let aged = |class: &usize| self.classes[*class].passed_over >= PASSED_OVER;
        let all = || (0..self.classes.len()).filter(waits);
        all().filter(aged).max_by_key(|class| self.classes[*class].passed_over).or_else(|| all().next())
    }

    pub fn pop(&mut self) -> Option<T> {
        self.pop_if(|_| true)
    }

    /// Takes what comes next, if it is wanted.
    pub fn pop_if(&mut self, is_wanted: impl FnOnce(&T) -> bool) -> Option<T> {
        let next = self.next()?;
        if !is_wanted(self.classes[next].tenants.peek()?) {
            return None;
        }
        for class in &mut self.classes[next + 1..] {
            class.passed_over += u32::from(!class.tenants.is_empty());
        }
        self.classes[next].passed_over = 0;
        self.classes[next].tenants.pop()
    }

    /// Takes the next question, if it is wanted, and nothing of other classes.
    pub fn pop_query_if(&mut self, is_wanted: impl FnOnce(&T) -> bool) -> Option<T> {
        let questions = &mut self.classes[Urgency::Query as usize].tenants;
        questions.peek().is_some_and(is_wanted).then(|| questions.pop())?
    }
}

/// Something that hands out items in an order of its own.
trait Queue: Default {
    type Item;
    fn is_empty(&self) -> bool;
    fn peek(&self) -> Option<&Self::Item>;
    fn pop(&mut self) -> Option<Self::Item>;
}

impl<T> Queue for VecDeque<T> {
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

/// Queues that are served in turn. An empty one is removed.
struct Ring<K, Q> {
    order: VecDeque<K>,
    queues: HashMap<K, Q>,
}

impl<K, Q> Default for Ring<K, Q> {
    fn default() -> Self {
        Ring { order: VecDeque::new(), queues: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash, Q: Queue> Ring<K, Q> {
    fn of(&mut self, key: K) -> &mut Q {
        if !self.queues.contains_key(&key) {
            self.order.push_back(key.clone());
        }
        self.queues.entry(key).or_default()
    }
}

impl<K: Clone + Eq + Hash, Q: Queue> Queue for Ring<K, Q> {
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

/// A number of places, given to those that wait for one in the order of [`Turns`].
pub struct Places {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    total: usize,
    taken: usize,
    waiting: Turns<oneshot::Sender<Place>>,
}

/// A place; dropping it gives it back.
pub struct Place {
    places: Option<Arc<Places>>,
}

impl Places {
    pub fn new(count: usize) -> Arc<Places> {
        Arc::new(Places { state: Mutex::new(State { total: count, ..State::default() }) })
    }

    /// Changes how many there are. Where more than that are taken, those given back are not given out again.
    pub fn resize(self: &Arc<Self>, count: usize) {
        lock(&self.state).total = count;
        self.give();
    }

    pub async fn take(self: &Arc<Self>, urgency: Urgency, whose: &Whose) -> Place {
        loop {
            let given = {
                let mut state = lock(&self.state);
                if state.taken < state.total {
                    state.taken += 1;
                    return Place { places: Some(Arc::clone(self)) };
                }
                let (give, given) = oneshot::channel();
                state.waiting.push(urgency, whose, give);
                given
            };
            // A sender is never dropped without a place.
            if let Ok(place) = given.await {
                return place;
            }
        }
    }

    /// Gives the free places to those who come next and still wait.
    fn give(self: &Arc<Self>) {
        loop {
            let next = {
                let mut state = lock(&self.state);
                if state.taken >= state.total {
                    return;
                }
                let Some(next) = state.waiting.pop() else { return };
                state.taken += 1;
                next
            };
            if let Err(mut place) = next.send(Place { places: Some(Arc::clone(self)) }) {
                place.places = None;
                lock(&self.state).taken -= 1;
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(places) = self.places.take() {
            lock(&places.state).taken -= 1;
            places.give();
        }
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

    #[test]
    fn fewer_places_are_given_only_when_more_than_those_have_been_given_back() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let places = Places::new(3);
            let mut taken = Vec::new();
            for _ in 0..3 {
                taken.push(places.take(Query, &whose("", 1)).await);
            }
            places.resize(1);
            let mut waiting = Box::pin(async { places.take(Query, &whose("", 1)).await });
            for _ in 0..2 {
                assert!(is_waiting(&mut waiting).await);
                taken.pop();
            }
            assert!(is_waiting(&mut waiting).await, "two had one of one place");
            taken.pop();
            let _first = waiting.await;
            places.resize(2);
            let _second = places.take(Query, &whose("", 1)).await;
        });
    }

    /// Whether it still waits.
    async fn is_waiting<T>(future: &mut (impl Future<Output = T> + Unpin)) -> bool {
        tokio::select! {
            biased;
            _ = future => false,
            () = tokio::task::yield_now() => true,
        }
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
    fn what_is_less_urgent_does_not_wait_for_ever() {
        let mut turns = Turns::default();
        for _ in 0..100 {
            turns.push(Query, &whose("", 1), "q");
            turns.push(Bulk, &whose("", 1), "b");
        }
        turns.push(Ingest, &whose("", 1), "i");
        let order = drain(&mut turns);
        let place = |item| order.iter().position(|it| *it == item).unwrap();
        assert_eq!((place("i"), place("b")), (PASSED_OVER as usize, PASSED_OVER as usize + 1));
        // And it takes no more than its share of a class that always waits.
        assert_eq!(order[..20].iter().filter(|item| **item == "q").count(), 17);
    }

    #[test]
    fn what_does_not_fit_stays_where_it_is() {
        let mut turns = Turns::default();
        turns.push(Query, &whose("", 1), 7);
        assert_eq!(turns.pop_if(|item| *item > 7), None);
        assert_eq!(turns.pop_if(|item| *item == 7), Some(7));
        assert!(turns.is_empty());
    }

    #[test]
    fn a_place_goes_to_the_most_urgent_that_still_waits() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let places = Places::new(1);
            let held = places.take(Ingest, &whose("", 1)).await;
            let order = Arc::new(Mutex::new(Vec::new()));
            let mut tasks = Vec::new();
            for urgency in [Ingest, Bulk, Query, Query] {
                let (places, order) = (Arc::clone(&places), Arc::clone(&order));
                tasks.push(tokio::spawn(async move {
                    let _place = places.take(urgency, &whose("", 1)).await;
                    order.lock().unwrap().push(urgency);
                }));
                tokio::task::yield_now().await;
            }
            // The client of one question leaves.
            tasks.remove(2).abort();
            tokio::task::yield_now().await;
            drop(held);
            for task in tasks {
                task.await.unwrap();
            }
            assert_eq!(*order.lock().unwrap(), [Query, Bulk, Ingest]);
            let _free = places.take(Ingest, &whose("", 1)).await;
        });
    }
}
