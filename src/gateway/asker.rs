//! Whether the client that asked still waits for the answer.

use std::future::Future;
use tokio::sync::watch;

/// Known to the work for a client. The default is one that waits for ever: work that is dropped with its client.
#[derive(Debug, Clone, Default)]
pub struct Asker(Option<watch::Receiver<()>>);

/// Kept as long as the client waits.
#[derive(Debug)]
pub struct Waiting {
    _alive: watch::Sender<()>,
}

impl Asker {
    /// One that waits until the other is dropped.
    pub fn new() -> (Waiting, Asker) {
        let (alive, watching) = watch::channel(());
        (Waiting { _alive: alive }, Asker(Some(watching)))
    }

    /// Whether the client has left.
    pub fn is_gone(&self) -> bool {
        self.0.as_ref().is_some_and(|watching| watching.has_changed().is_err())
    }

    /// What comes of a wait; None when the client left before.
    pub async fn unless_gone<T>(&self, wait: impl Future<Output = T>) -> Option<T> {
        let gone = async {
            match &self.0 {
                Some(watching) => while watching.clone().changed().await.is_ok() {},
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = gone => None,
            result = wait => Some(result),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    #[test]
    fn a_wait_ends_when_the_client_is_gone_and_nothing_begins_after() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            assert_eq!(Asker::default().unless_gone(ready(1)).await, Some(1));
            let (waiting, asker) = Asker::new();
            assert_eq!(asker.unless_gone(ready(2)).await, Some(2));
            let waits = tokio::spawn({
                let asker = asker.clone();
                async move { asker.unless_gone(pending::<i32>()).await }
            });
            tokio::task::yield_now().await;
            assert!(!asker.is_gone());
            drop(waiting);
            assert!(asker.is_gone() && !Asker::default().is_gone());
            assert_eq!(waits.await.unwrap(), None);
            assert_eq!(asker.unless_gone(ready(3)).await, None);
        });
    }
}
