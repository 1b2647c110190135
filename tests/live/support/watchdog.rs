//! A cluster whose test does not end is stopped, so that one statement that waits for ever does not cost the
//! results of all tests.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

/// The longest a test may take: a multiple of what the longest takes on a slow machine.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// Watches a cluster until this is dropped.
pub struct Watchdog {
    _ends: Sender<()>,
}

impl Watchdog {
    /// After the limit `sessions` says what sessions wait for, which is printed, and `stop` stops the
    /// cluster, at which the test fails.
    pub fn begin(name: PathBuf, mut sessions: Command, mut stop: Command) -> Watchdog {
        let (ends, ended) = mpsc::channel();
        std::thread::spawn(move || {
            if ended.recv_timeout(LIMIT) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let said = match sessions.output() {
                Ok(output) => [output.stdout, output.stderr]
                    .map(|said| String::from_utf8_lossy(&said).into_owned())
                    .concat(),
                Err(error) => error.to_string(),
            };
            let name = name.display();
            // Not by eprintln, which says it only if the test ends.
            let _ =
                writeln!(std::io::stderr(), "{name}: stopped after {} s, sessions:\n{said}", LIMIT.as_secs());
            let _ = stop.output();
        });
        Watchdog { _ends: ends }
    }
}
