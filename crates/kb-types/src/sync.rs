//! Locks that survive a panic. The data that they guard is consistent at every step, so a lock that a
//! panicking thread poisoned is acquired like any other.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Releases the lock until the condition variable is notified, and then acquires it again.
pub fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_poisoned_lock_is_acquired_with_its_data() {
        let mutex = Mutex::new(1);
        let panics = AssertUnwindSafe(|| {
            *lock(&mutex) = 2;
            let _guard = lock(&mutex);
            panic!("with the lock held");
        });
        assert!(catch_unwind(panics).is_err() && mutex.is_poisoned());
        assert_eq!(*lock(&mutex), 2);
    }
}
