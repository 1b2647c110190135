//! The limits within which one document is turned into chunks: time, bytes of text, number of chunks. Every
//! parser and chunker reports its work here as it goes, so that it can be stopped.

use crate::error::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How much work is done between two checks of the clock; a unit is about a byte that is read once. A
/// document that needs less is never refused for its time.
const STEP: u64 = 64 * 1024;

/// The limits of a document, from the settings.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub time: Option<Duration>,
    pub chunks: usize,
    /// The most bytes of the extracted text, and of all chunks together with the headings above them.
    pub bytes: usize,
    /// Is called between steps of work. In a backend it serves interrupts, and does not return where the
    /// statement was cancelled. Off the main thread it must do nothing.
    pub interrupt: fn(),
}

impl Limits {
    /// No limits and no interrupts, for texts that are not documents.
    pub fn none() -> Limits {
        Limits { time: None, chunks: usize::MAX, bytes: usize::MAX, interrupt: || {} }
    }
}

/// The limits of one document, with what it has used of them. Clones share the count.
#[derive(Debug, Clone)]
pub struct Bounds {
    limits: Limits,
    until: Option<Instant>,
    work: Arc<AtomicU64>,
}

impl Bounds {
    /// Starts the clock.
    pub fn begin(limits: Limits) -> Bounds {
        let until = limits.time.and_then(|time| Instant::now().checked_add(time));
        Bounds { limits, until, work: Arc::default() }
    }

    /// See [`Limits::none`].
    pub fn none() -> Bounds {
        Bounds::begin(Limits::none())
    }

    /// Reports work before or after it is done. Returns an error when the time is used up.
    pub fn spend(&self, work: usize) -> Result<()> {
        let work = work as u64;
        let before = self.work.fetch_add(work, Ordering::Relaxed);
        if before / STEP == (before + work) / STEP {
            return Ok(());
        }
        (self.limits.interrupt)();
        match (self.until, self.limits.time) {
            (Some(until), Some(time)) if Instant::now() >= until => Err(limit(
                format!("splitting it into chunks takes longer than {} s", time.as_secs_f64()),
                "kb.extract_timeout",
            )),
            _ => Ok(()),
        }
    }

    /// All work reported so far.
    pub fn spent(&self) -> u64 {
        self.work.load(Ordering::Relaxed)
    }

    /// Returns an error when the document has more chunks than the limit allows.
    pub fn check_chunks(&self, chunks: usize) -> Result<()> {
        let most = self.limits.chunks;
        if chunks <= most {
            return Ok(());
        }
        Err(limit(format!("it yields more than {most} chunks"), "kb.max_chunks_per_document"))
    }

    /// Returns an error when the document has more text than the limit allows.
    pub fn check_bytes(&self, bytes: usize) -> Result<()> {
        let most = self.limits.bytes;
        if bytes <= most {
            return Ok(());
        }
        Err(limit(format!("it yields more than {most} bytes of text or chunks"), "kb.max_extracted_size"))
    }
}

fn limit(problem: String, setting: &'static str) -> Error {
    Error::Limit { object: "the text".into(), problem, setting }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds() -> Bounds {
        Bounds::begin(Limits { time: Some(Duration::ZERO), chunks: 2, bytes: 10, interrupt: || {} })
    }

    #[test]
    fn an_error_of_a_limit_names_the_setting_that_raises_it() {
        assert!(bounds().check_chunks(2).is_ok() && bounds().check_bytes(10).is_ok());
        for (error, setting) in [
            (bounds().check_chunks(3).unwrap_err(), "kb.max_chunks_per_document"),
            (bounds().check_bytes(11).unwrap_err(), "kb.max_extracted_size"),
            (bounds().spend(STEP as usize).unwrap_err(), "kb.extract_timeout"),
        ] {
            assert_eq!(error.sqlstate(), "54000");
            assert!(error.hint().unwrap().contains(setting), "{error:?}");
            assert!(!error.is_transient() && error.is_of_the_work());
        }
    }

    #[test]
    fn a_small_document_is_never_refused_for_its_time() {
        let bounds = bounds();
        for _ in 0..1000 {
            assert!(bounds.spend(60).is_ok());
        }
        assert!((0..10_000).any(|_| bounds.clone().spend(60).is_err()));
    }
}
