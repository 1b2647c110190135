//! Cancellation of work whose client no longer waits for the answer.

use std::future::Future;
use tokio::sync::watch;

/// Tells work whether any of its clients still waits. The default is never cancelled and serves for work that
/// is dropped together with its client.
#[derive(Debug, Clone, Default)]
pub struct CancellationToken(Vec<watch::Receiver<()>>);

/// Is kept as long as the client waits. Dropping it cancels the work.
#[derive(Debug)]
pub struct CancellationGuard {
    _alive: watch::Sender<()>,
}

impl CancellationToken {
    pub fn new() -> (CancellationGuard, CancellationToken) {
        let (alive, watching) = watch::channel(());
        (CancellationGuard { _alive: alive }, CancellationToken(vec![watching]))
    }

    /// A token for work of several clients, which is cancelled when all of them have left.
    pub fn of_all<'a>(tokens: impl IntoIterator<Item = &'a CancellationToken>) -> CancellationToken {
        let mut all = Vec::new();
        for token in tokens {
            if token.0.is_empty() {
                return CancellationToken::default();
            }
            all.extend_from_slice(&token.0);
        }
        CancellationToken(all)
    }

    pub fn is_cancelled(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(|watching| watching.has_changed().is_err())
    }

    /// The result of `wait`, or None if it is cancelled first.
    pub async fn run_until_cancelled<T>(&self, wait: impl Future<Output = T>) -> Option<T> {
        let cancelled = async {
            if self.0.is_empty() {
                std::future::pending::<()>().await;
            }
            for watching in &self.0 {
                while watching.clone().changed().await.is_ok() {}
            }
        };
        tokio::select! {
            biased;
            () = cancelled => None,
            result = wait => Some(result),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    #[test]
    fn a_wait_ends_when_it_is_cancelled_and_nothing_begins_after() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            assert_eq!(CancellationToken::default().run_until_cancelled(ready(1)).await, Some(1));
            let (guard, token) = CancellationToken::new();
            assert_eq!(token.run_until_cancelled(ready(2)).await, Some(2));
            let waits = tokio::spawn({
                let token = token.clone();
                async move { token.run_until_cancelled(pending::<i32>()).await }
            });
            tokio::task::yield_now().await;
            assert!(!token.is_cancelled());
            drop(guard);
            assert!(token.is_cancelled() && !CancellationToken::default().is_cancelled());
            assert_eq!(waits.await.unwrap(), None);
            assert_eq!(token.run_until_cancelled(ready(3)).await, None);
        });
    }

    #[test]
    fn work_of_several_is_cancelled_when_the_last_has_left() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (first, second) = (CancellationToken::new(), CancellationToken::new());
            let both = CancellationToken::of_all([&first.1, &second.1]);
            drop(first.0);
            assert!(!both.is_cancelled());
            assert_eq!(both.run_until_cancelled(ready(1)).await, Some(1));
            drop(second.0);
            assert!(both.is_cancelled());
            assert_eq!(both.run_until_cancelled(pending::<i32>()).await, None);
            let with_one_that_stays = CancellationToken::of_all([&first.1, &CancellationToken::default()]);
            assert!(!with_one_that_stays.is_cancelled());
        });
    }
}
