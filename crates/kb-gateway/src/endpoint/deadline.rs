//! Waits for a call as long as its client does. A request that has been sent continues when the client
//! leaves, because it is paid for and the breaker must learn whether the endpoint answers. But nothing more
//! is sent.

use super::super::cancellation::CancellationToken;
use std::future::Future;
use std::time::Duration;

/// Why there is no result.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum DeadlineError {
    #[error(
        "no answer within {0} ms: the provider is slow, or its limits (rpm, tpm, max_concurrency) are used up"
    )]
    Late(u128),
    #[error("asking a provider failed")]
    Panicked,
}

/// Runs work as a separate task and returns its result. The work is cancelled when this returns or is
/// dropped.
pub async fn within<T, F>(
    patience: Option<Duration>,
    work: impl FnOnce(CancellationToken) -> F,
) -> Result<T, DeadlineError>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let (_guard, cancellation) = CancellationToken::new();
    let task = tokio::spawn(work(cancellation));
    let result = match patience {
        None => task.await,
        Some(patience) => {
            let late = |_| DeadlineError::Late(patience.as_millis());
            // The deadline is a little before the client's own timeout, because this error names the
            // endpoint, while the client's names only the gateway.
            tokio::time::timeout(patience - patience / 20, task).await.map_err(late)?
        }
    };
    result.map_err(|_| DeadlineError::Panicked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    #[test]
    fn at_the_deadline_the_client_is_told_and_the_work_cancelled() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            assert_eq!(within(Some(Duration::from_secs(60)), |_| async { 1 }).await, Ok(1));
            assert_eq!(within(None, |_| async { 2 }).await, Ok(2));
            let (tell, told) = tokio::sync::oneshot::channel();
            let late = within(Some(Duration::from_millis(20)), |cancellation| async move {
                let result = cancellation.run_until_cancelled(pending::<()>()).await;
                let _ = tell.send(result);
            });
            assert_eq!(late.await, Err(DeadlineError::Late(20)));
            assert_eq!(told.await, Ok(None));
        });
    }
}
