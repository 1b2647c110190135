//! Work that may take seconds (parsing and cutting a large document), off the main thread, which
//! meanwhile serves PostgreSQL's interrupts.

use crate::error::{Error, Result};
use crate::pg::{background, report, wait};
use std::sync::mpsc::{self, TryRecvError};
use std::time::Duration;

/// Runs `work` on a thread with all signals blocked. `work` must not call PostgreSQL.
pub fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let (done, result) = mpsc::channel();
    background::without_signals(|| {
        std::thread::Builder::new().name("kb-prepare".into()).spawn(move || {
            let _ = done.send(work());
        })
    })
    .map_err(|e| Error::Internal(format!("cannot start a thread: {e}")))?;
    // Most work takes less than this.
    if let Ok(value) = result.recv_timeout(Duration::from_millis(50)) {
        return Ok(value);
    }
    loop {
        match result.try_recv() {
            Ok(value) => return Ok(value),
            Err(TryRecvError::Disconnected) => {
                return Err(Error::Internal("preparing a document failed".into()));
            }
            Err(TryRecvError::Empty) => {
                wait::latch(Duration::from_millis(20));
                report::check_interrupts();
            }
        }
    }
}
