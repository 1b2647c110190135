//! Which background process runs: a locked file per process in the data directory.
//!
//! The kernel drops the lock when its holder dies, however it dies, so a stale file never counts.
//! This needs no shared memory and so works without shared_preload_libraries, and looking a process
//! up cannot raise an error, so that it may be done while a transaction commits.
//!
//! A worker notes in its file which jobs it prepares and writes ([`Activity`]). It removes the file as the
//! first step of its exit, also under SIGTERM. So a worker that finds a file without a lock follows one that
//! died, and the noted documents have had an attempt: a document that kills workers does not do so for ever.

use kb_types::sync;
use pgrx::pg_sys;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once};
use std::time::Duration;

/// Relative to the data directory, which is every server process's working directory. The
/// contents of this folder are skipped by base backups.
pub const DIRECTORY: &str = "pg_stat_tmp";

/// Locked while its process runs. The file has the pid and, from [`NOTES_AT`] on, a number for each [`Activity`]: what
/// is being worked on.
#[derive(Debug)]
pub struct PidFile {
    file: File,
    path: PathBuf,
    /// What the previous holder was working on, if it died without letting go.
    pub died_at: Vec<i64>,
}

/// What a process may be doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    Prepare,
    Write,
}

/// Behind the pid, with a margin.
const NOTES_AT: u64 = 16;
/// A line of its own for each note.
const NOTE_BYTES: u64 = 21;
/// The note of a process that is not doing this.
const NOTHING: i64 = 0;

static HELD: Mutex<Option<PidFile>> = Mutex::new(None);

/// Keeps a file until [`let_go`] or until the process begins to exit: one that is exiting must not be taken for one
/// that can still be woken.
pub fn hold(file: PidFile) {
    static AT_EXIT: Once = Once::new();
    *sync::lock(&HELD) = Some(file);
    // SAFETY: the callback stays loaded as long as the library; it runs before the process leaves the
    // activity view, and raises nothing.
    AT_EXIT.call_once(|| unsafe { pg_sys::before_shmem_exit(Some(at_exit), pg_sys::Datum::from(0)) });
}

/// Lets go of the file that [`hold`] keeps.
pub fn let_go() {
    drop(sync::lock(&HELD).take());
}

/// Writes into the held file what the process is working on, for the next holder if this one dies of it. May be called
/// off the main thread.
pub fn note(activity: Activity, work: Option<i64>) {
    if let Some(held) = sync::lock(&HELD).as_ref() {
        // A note that cannot be written is not worth a failure.
        let at = NOTES_AT + NOTE_BYTES * activity as u64;
        let _ = held.file.write_all_at(format!("{:<20}\n", work.unwrap_or(NOTHING)).as_bytes(), at);
    }
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
        // `presence` has a shared lock for an instant: try a few times.
        for _ in 0..20 {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path)?;
            if lock(&file, libc::LOCK_EX) {
                // The previous holder may have removed the file between our open and our lock.
                let same = std::fs::metadata(&path)
                    .is_ok_and(|m| file.metadata().is_ok_and(|f| f.ino() == m.ino() && f.dev() == m.dev()));
                if !same {
                    continue;
                }
                let (_, died_at) = read(&mut file);
                file.set_len(0)?;
                let pid = std::process::id();
                file.write_all_at(format!("{pid:<15}\n{NOTHING:<20}\n{NOTHING:<20}\n").as_bytes(), 0)?;
                return Ok(Some(PidFile { file, path, died_at }));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(None)
    }
}

/// Pid and notes of a file, as far as it has them.
fn read(file: &mut File) -> (Option<i32>, Vec<i64>) {
    let mut text = String::new();
    let _ = file.read_to_string(&mut text);
    let mut words = text.split_whitespace();
    let pid = words.next().and_then(|word| word.parse().ok());
    (pid, words.filter_map(|word| word.parse().ok()).filter(|work| *work != NOTHING).collect())
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Removed before the lock is released, so that nobody finds it unlocked under its name.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether the named process runs, and its pid.
pub fn presence(name: &str) -> Presence {
    let Ok(mut file) = File::open(path(name)) else { return Presence::Absent };
    if lock(&file, libc::LOCK_SH) {
        return Presence::Absent;
    }
    // An empty file: its holder is about to write its pid, and so about to start its work.
    Presence::Running(read(&mut file).0.unwrap_or(0))
}

/// Ends the named process, if it runs, as a fast shutdown would.
pub fn terminate(name: &str) {
    if let Presence::Running(pid @ 1..) = presence(name) {
        // SAFETY: the lock proves the process alive and ours.
        unsafe { libc::kill(pid, libc::SIGTERM) };
    }
}

/// A named process that is woken often: its file stays open, so that nothing is looked up.
#[derive(Debug)]
pub struct Watched(Option<File>);

impl Watched {
    pub const fn new() -> Watched {
        Watched(None)
    }

    /// Sets the latch of the process if it runs; false when it does not. Always of the same name.
    pub fn wake(&mut self, name: &str) -> bool {
        let pid = match self.pid() {
            None => {
                self.0 = File::open(path(name)).ok();
                self.pid()
            }
            pid => pid,
        };
        match pid {
            None => false,
            Some(0) => true,
            // SAFETY: the lock proves the process alive; PostgreSQL's SIGUSR1 handler sets its latch.
            Some(pid) => unsafe { libc::kill(pid, libc::SIGUSR1) == 0 },
        }
    }

    /// The pid of the process that has the open file locked, 0 if it is about to write it.
    fn pid(&mut self) -> Option<i32> {
        let file = self.0.as_ref()?;
        if lock(file, libc::LOCK_SH) {
            // Closing it lets go of the lock.
            self.0 = None;
            return None;
        }
        let mut text = [0; NOTES_AT as usize];
        let length = file.read_at(&mut text, 0).unwrap_or(0);
        let text = std::str::from_utf8(&text[..length]).unwrap_or_default();
        Some(text.trim().parse().unwrap_or(0))
    }
}
