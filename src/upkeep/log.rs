//! Faults that last are written to the server's log once a minute, not again and again.

use crate::pg::report;
use kb_types::error::Error;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::{Duration, Instant};

/// After how long the same is logged again, if it still lasts.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct Log {
    /// When each line was last written.
    written: HashMap<String, Instant>,
}

impl Log {
    /// Logs what went wrong: the same line only once in a while, and all faults that are locks as if they
    /// were one.
    pub fn write(&mut self, what: &str, error: &Error) {
        let line = format!("{what}: {error}");
        let topic = if error.is_lock() { "a lock".to_string() } else { line.clone() };
        self.written.retain(|_, at| at.elapsed() < AGAIN_AFTER);
        if let Entry::Vacant(place) = self.written.entry(topic) {
            place.insert(Instant::now());
            report::log(&line);
        }
    }
}
