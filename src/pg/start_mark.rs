//! Limits the starts of a process to one a second, whichever session asks for it. Otherwise a process that
//! fails as soon as it starts would be forked at every commit, and each of many sessions that ask at the same
//! time would get one.

use super::pidfile::DIRECTORY;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The time that a requested process has to lock its pid file before it is requested again.
const GRACE: Duration = Duration::from_secs(1);

fn path(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(format!("kb.{name}.asked"))
}

/// Whether the caller may start the named process. Returns false if somebody has requested it within the last
/// second. The call raises nothing, so it may be made while a transaction commits.
pub fn take(name: &str) -> bool {
    let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path(name));
    // If no file can be written, two starts are better than none.
    let Ok(file) = opened else { return true };
    // SAFETY: the descriptor is open as long as `file` lives.
    let is_ours = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 };
    if !is_ours || is_fresh(&file) {
        return false;
    }
    let _ = file.write_all_at(b"1", 0);
    true
}

/// Whether the file was marked within the last second. A file that has just been created is empty. A time in
/// the future does not count, because the clock was set back.
fn is_fresh(file: &File) -> bool {
    let written = file.metadata().ok().filter(|file| file.len() > 0).and_then(|file| file.modified().ok());
    written.and_then(|at| at.elapsed().ok()).is_some_and(|age| age < GRACE)
}

/// Permits another start at once, because the process has started or could not be requested.
pub fn clear(name: &str) {
    let _ = std::fs::remove_file(path(name));
}
