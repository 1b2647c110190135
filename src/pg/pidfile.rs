//! Which background process runs: a locked file per process in the data directory.
//!
//! The kernel drops the lock when its holder dies, however it dies, so a stale file never counts.
//! This needs no shared memory and so works without shared_preload_libraries, and looking a process
//! up cannot raise an error, so that it may be done while a transaction commits.

use pgrx::pg_sys;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

/// Relative to the data directory, which is every server process's working directory. The
/// contents of this folder are skipped by base backups.
pub const DIRECTORY: &str = "pg_stat_tmp";

/// Held while its process runs.
#[derive(Debug)]
pub struct PidFile {
    _file: File,
    path: PathBuf,
}

static HELD: Mutex<Option<PidFile>> = Mutex::new(None);

/// Keeps a file until [`let_go`] or the process begins to exit, whichever is first: a process that is on
/// its way out must not be taken for one that can still be woken.
pub fn hold(file: PidFile) {
    static AT_EXIT: Once = Once::new();
    *HELD.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
    // SAFETY: the callback stays loaded as long as the library; it runs before the process leaves the
    // activity view, and raises nothing.
    AT_EXIT.call_once(|| unsafe { pg_sys::before_shmem_exit(Some(at_exit), pg_sys::Datum::from(0)) });
}

/// Lets go of the file that [`hold`] keeps.
pub fn let_go() {
    drop(HELD.lock().unwrap_or_else(PoisonError::into_inner).take());
}

unsafe extern "C-unwind" fn at_exit(_code: i32, _arg: pg_sys::Datum) {
    let_go();
}

/// What a look at a pid file finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    Absent,
    Running(i32),
}

fn path(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(format!("kb.{name}.pid"))
}

fn lock(file: &File, operation: i32) -> bool {
    // SAFETY: the descriptor is open as long as `file` lives.
    unsafe { libc::flock(file.as_raw_fd(), operation | libc::LOCK_NB) == 0 }
}

impl PidFile {
    /// None when another process holds it.
    pub fn acquire(name: &str) -> io::Result<Option<PidFile>> {
        let path = path(name);
        // A looker holds a shared lock for an instant: try a few times.
        for _ in 0..20 {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path)?;
            if lock(&file, libc::LOCK_EX) {
                // The holder before may have removed the file between our open and our lock.
                let same = std::fs::metadata(&path)
                    .is_ok_and(|m| file.metadata().is_ok_and(|f| f.ino() == m.ino() && f.dev() == m.dev()));
                if !same {
                    continue;
                }
                file.set_len(0)?;
                file.seek(SeekFrom::Start(0))?;
                file.write_all(std::process::id().to_string().as_bytes())?;
                return Ok(Some(PidFile { _file: file, path }));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(None)
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Removed before the lock goes, so that nobody finds it unlocked by its name.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether the named process runs, and its pid.
pub fn presence(name: &str) -> Presence {
    let Ok(mut file) = File::open(path(name)) else { return Presence::Absent };
    if lock(&file, libc::LOCK_SH) {
        return Presence::Absent;
    }
    let mut text = String::new();
    if file.read_to_string(&mut text).is_err() {
        return Presence::Absent;
    }
    // An empty file: its holder is about to write its pid, and so about to start its work.
    Presence::Running(text.trim().parse().unwrap_or(0))
}

/// Ends the named process, if it runs, as a fast shutdown would.
pub fn terminate(name: &str) {
    if let Presence::Running(pid @ 1..) = presence(name) {
        // SAFETY: the lock proves the process alive and ours.
        unsafe { libc::kill(pid, libc::SIGTERM) };
    }
}

/// Sets the latch of the named process if it runs; false when it does not.
pub fn wake(name: &str) -> bool {
    match presence(name) {
        Presence::Absent => false,
        Presence::Running(0) => true,
        // SAFETY: the lock proves the process alive; PostgreSQL's SIGUSR1 handler sets its latch.
        Presence::Running(pid) => unsafe { libc::kill(pid, libc::SIGUSR1) == 0 },
    }
}
