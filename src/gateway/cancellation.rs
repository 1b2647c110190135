//! Whether the client of a request still waits for the answer.

use std::future::Future;
use tokio::sync::watch;

/// Tells work whether its client still waits. The default is never cancelled: for work that is dropped with its client.
#[derive(Debug, Clone, Default)]
pub struct CancellationToken(Option<watch::Receiver<()>>);

/// Kept as long as the client waits; dropping it cancels.
#[derive(Debug)]
pub struct CancellationGuard {
    _alive: watch::Sender<()>,
}

impl CancellationToken {
    pub fn new() -> (CancellationGuard, CancellationToken) {
        let (alive, watching) = watch::channel(());
        (CancellationGuard { _alive: alive }, CancellationToken(Some(watching)))
    }

    pub fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(|watching| watching.has_changed().is_err())
    }

    /// The result of `wait`; None if it was cancelled first.
    pub async fn run_until_cancelled<T>(&self, wait: impl Future<Output = T>) -> Option<T> {
        let cancelled = async {
            match &self.0 {
                Some(watching) => while watching.clone().changed().await.is_ok() {},
                None => std::future::pending().await,
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
}
