//! Limits the memory of requests, in total and for each client.
//!
//! A client may hold as much as is free (dynamic thresholds; Choudhury and Hahne, "Dynamic queue length
//! thresholds for shared-memory packet switches", 1998). A single client gets half, and however many clients
//! hold all that they may, there is room for another.
//!
//! Questions have separate memory. A client that waits gets `Response::Alive`, because the worker would give
//! up on a silent gateway, and a client that stops within a frame is disconnected if memory is short. The
//! worker follows the same rule when it sends, for each embedder separately.

use kb_types::sync::lock;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// The shared memory, in bytes.
#[derive(Debug)]
pub struct Memory {
    total: usize,
    used: Mutex<usize>,
    freed: Notify,
}

/// What one client holds. It is changed only under the lock of the memory's count.
#[derive(Debug, Clone, Default)]
pub struct Share(Arc<Mutex<usize>>);

/// The memory that a request holds until this is dropped.
#[derive(Debug)]
pub struct Reservation {
    memory: Arc<Memory>,
    share: Share,
    bytes: usize,
}

/// Whether a client that holds `own` bytes may take `more`, that is, whether it then holds no more than is
/// left.
pub fn is_within_share(own: usize, more: usize, used: usize, total: usize) -> bool {
    own.saturating_add(more) <= total.saturating_sub(used).saturating_sub(more)
}

impl Memory {
    pub fn new(total: usize) -> Arc<Memory> {
        Arc::new(Memory { total, used: Mutex::new(0), freed: Notify::new() })
    }

    /// Waits until bytes are free and takes them. The caller must not request more than half of the memory,
    /// which would never be free.
    pub async fn take(self: &Arc<Self>, share: &Share, bytes: usize) -> Reservation {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if let Some(reservation) = self.try_take(share, bytes) {
                return reservation;
            }
            freed.await;
        }
    }

    fn try_take(self: &Arc<Self>, share: &Share, bytes: usize) -> Option<Reservation> {
        let mut used = lock(&self.used);
        let mut own = lock(&share.0);
        if !is_within_share(*own, bytes, *used, self.total) {
            return None;
        }
        *used += bytes;
        *own += bytes;
        Some(Reservation { memory: Arc::clone(self), share: share.clone(), bytes })
    }

    /// Whether less than an eighth is free, so that a client may be waiting.
    pub fn is_short(&self) -> bool {
        *lock(&self.used) > self.total - self.total / 8
    }

    #[cfg(test)]
    fn used(&self) -> usize {
        *lock(&self.used)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut used = lock(&self.memory.used);
        *used = used.saturating_sub(self.bytes);
        let mut own = lock(&self.share.0);
        *own = own.saturating_sub(self.bytes);
        drop((used, own));
        self.memory.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    #[test]
    fn one_client_gets_half_and_there_is_always_room_for_another() {
        let memory = Memory::new(1000);
        let mut reserved = Vec::new();
        for client in 0..8 {
            let share = Share::default();
            let before = memory.used();
            reserved.extend(std::iter::from_fn(|| memory.try_take(&share, 1)));
            match client {
                0 => assert_eq!(memory.used(), 500),
                _ => assert!(memory.used() > before, "client {client} got nothing"),
            }
        }
        // Many clients that take as much as they can at once cannot take everything, either.
        let memory = Memory::new(1000);
        let reserved: Vec<Reservation> =
            (0..99).filter_map(|_| memory.try_take(&Share::default(), 100)).collect();
        assert_eq!(reserved.len(), 9);
        assert!(memory.try_take(&Share::default(), 50).is_some());
        assert!(memory.is_short());
    }

    #[test]
    fn dropped_memory_goes_to_waiting_requests() {
        runtime().block_on(async {
            let memory = Memory::new(100);
            let reservation = memory.take(&Share::default(), 40).await;
            let waiting = tokio::spawn({
                let memory = Arc::clone(&memory);
                async move { memory.take(&Share::default(), 40).await.bytes }
            });
            tokio::task::yield_now().await;
            assert!(!waiting.is_finished());
            drop(reservation);
            assert_eq!(waiting.await.unwrap(), 40);
            assert_eq!(memory.used(), 0);
        });
    }
}
