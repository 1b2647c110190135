//! Work that may take seconds (parsing and cutting a large document), on a thread of its own beside the main
//! one.

use crate::pg::background;
use kb_types::error::{Error, Result};
use std::sync::mpsc::{self, Receiver, TryRecvError};

/// Work that was begun on a thread, and its result once that is there.
pub struct HelperThread<T> {
    coming: Receiver<T>,
    arrived: Option<Result<T>>,
}

/// Begins `work` on a thread with all signals blocked; its end wakes the main thread. `work` must not call
/// PostgreSQL.
pub fn begin<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<HelperThread<T>> {
    let (done, coming) = mpsc::channel();
    background::without_signals(|| {
        std::thread::Builder::new().name("kb-prepare".into()).spawn(move || {
            let _ = done.send(work());
            background::wake_main_thread();
        })
    })
    .map_err(|e| Error::Internal(format!("cannot start a thread: {e}")))?;
    Ok(HelperThread { coming, arrived: None })
}

impl<T> HelperThread<T> {
    pub fn is_done(&mut self) -> bool {
        if self.arrived.is_none() {
            self.arrived = match self.coming.try_recv() {
                Ok(value) => Some(Ok(value)),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => {
                    Some(Err(Error::Internal("preparing a document failed".into())))
                }
            };
        }
        self.arrived.is_some()
    }

    /// The result, once.
    pub fn take(&mut self) -> Option<Result<T>> {
        self.is_done();
        self.arrived.take()
    }
}
