//! Stops the cluster of a test that does not end, so that one statement that waits for ever does not cost the
//! results of all tests.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

/// The longest time that a test may take: a multiple of the longest on a slow machine.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// Watches a cluster until this is dropped.
pub struct Watchdog {
    _ends: Sender<()>,
}

impl Watchdog {
    /// After the limit, `sessions` returns what sessions wait for, which is printed, and `stop` stops the
    /// cluster, which makes the test fail.
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
            // eprintln would print this only if the test ended.
            let _ =
                writeln!(std::io::stderr(), "{name}: stopped after {} s, sessions:\n{said}", LIMIT.as_secs());
            let _ = stop.output();
        });
        Watchdog { _ends: ends }
    }
}
