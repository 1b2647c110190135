//! A semaphore whose places are given in the order of urgency and turns.

use super::turns::{Turns, Urgency, Whose};
use kb_types::sync::lock;
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;

/// A number of places, which are given to waiters in the order of [`Turns`].
pub struct Places {
    state: Mutex<PlacesState>,
}

#[derive(Default)]
struct PlacesState {
    total: usize,
    taken: usize,
    waiting: Turns<oneshot::Sender<Place>>,
}

/// A place, which is given back when this is dropped.
pub struct Place {
    places: Option<Arc<Places>>,
}

impl Places {
    pub fn new(count: usize) -> Arc<Places> {
        Arc::new(Places { state: Mutex::new(PlacesState { total: count, ..PlacesState::default() }) })
    }

    /// Changes the number of places. If more are taken, places that are given back are withdrawn.
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
            // The sender is never dropped without giving a place.
            if let Ok(place) = given.await {
                return place;
            }
        }
    }

    /// Gives free places to the next waiters that still wait.
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

    fn whose() -> Whose {
        Whose { database: 1, connection: 1, ..Whose::default() }
    }

    #[test]
    fn after_a_reduction_places_are_given_only_below_the_new_number() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let places = Places::new(3);
            let mut taken = Vec::new();
            for _ in 0..3 {
                taken.push(places.take(Query, &whose()).await);
            }
            places.resize(1);
            let mut waiting = Box::pin(async { places.take(Query, &whose()).await });
            for _ in 0..2 {
                assert!(is_waiting(&mut waiting).await);
                taken.pop();
            }
            assert!(is_waiting(&mut waiting).await, "two had one of one place");
            taken.pop();
            let _first = waiting.await;
            places.resize(2);
            let _second = places.take(Query, &whose()).await;
        });
    }

    /// Whether the future is still waiting.
    async fn is_waiting<T>(future: &mut (impl Future<Output = T> + Unpin)) -> bool {
        tokio::select! {
            biased;
            _ = future => false,
            () = tokio::task::yield_now() => true,
        }
    }

    #[test]
    fn a_place_goes_to_the_most_urgent_that_still_waits() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let places = Places::new(1);
            let held = places.take(Ingest, &whose()).await;
            let order = Arc::new(Mutex::new(Vec::new()));
            let mut tasks = Vec::new();
            for urgency in [Ingest, Bulk, Query, Query] {
                let (places, order) = (Arc::clone(&places), Arc::clone(&order));
                tasks.push(tokio::spawn(async move {
                    let _place = places.take(urgency, &whose()).await;
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
            let _free = places.take(Ingest, &whose()).await;
        });
    }
}
