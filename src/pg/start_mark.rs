//! One start of a process a second at most, whoever asks: one that fails as soon as it starts would otherwise be forked at
//! every commit, and many sessions that ask at the same time would each get one.

use super::pidfile::DIRECTORY;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a process that was asked for has to lock its pid file before it is asked for again.
const GRACE: Duration = Duration::from_secs(1);

fn path(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(format!("kb.{name}.asked"))
}

/// Whether the caller is to start the named process; false: somebody has asked for it within a second. Raises nothing, so
/// that it may be called while a transaction commits.
pub fn take(name: &str) -> bool {
    let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path(name));
    // Where no file can be written, starting twice is better than not at all.
    let Ok(file) = opened else { return true };
    // SAFETY: the descriptor is open as long as `file` lives.
    let is_ours = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 };
    if !is_ours || is_fresh(&file) {
        return false;
    }
    let _ = file.write_all_at(b"1", 0);
    true
}

/// A file that was only just created is empty. A time of the future is none: the clock was set.
fn is_fresh(file: &File) -> bool {
    let written = file.metadata().ok().filter(|file| file.len() > 0).and_then(|file| file.modified().ok());
    written.and_then(|at| at.elapsed().ok()).is_some_and(|age| age < GRACE)
}

/// The process may be started again at once: it has started, or could not be asked for.
pub fn clear(name: &str) {
    let _ = std::fs::remove_file(path(name));
}
