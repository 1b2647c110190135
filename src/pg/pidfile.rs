//! Which background processes run: each locks a file in the data directory.
//!
//! The kernel drops the lock when the process dies, however it dies, so a stale file never counts. The files
//! need no shared memory, so they work without shared_preload_libraries. Looking up a process cannot raise an
//! error, so it may be done while a transaction commits.
//!
//! A worker notes in its file which jobs it prepares and writes ([`Activity`]). It removes the file as the
//! first step of its exit, also under SIGTERM. A worker that finds a file without a lock therefore follows
//! one that died, and charges an attempt to the documents that are noted there, so that a document that kills
//! workers does not do so for ever.

use kb_types::sync;
use pgrx::pg_sys;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once};
use std::time::Duration;

/// Relative to the data directory, which is the working directory of every server process. Base backups skip
/// the contents of this folder.
pub const DIRECTORY: &str = "pg_stat_tmp";

/// The pid file of this process, which stays locked as long as the process runs. The file holds the pid and,
/// from [`NOTES_AT`] on, a number for each [`Activity`] that says what is being worked on.
#[derive(Debug)]
pub struct PidFile {
    file: File,
    path: PathBuf,
    /// The jobs on which the previous holder was working, if it died without releasing the file.
    pub died_at: Vec<i64>,
}

/// What a process may be doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    Prepare,
    Write,
}

/// The offset of the notes: the pid needs less, with a margin.
const NOTES_AT: u64 = 16;
/// Each note has a line of its own.
const NOTE_BYTES: u64 = 21;
/// The note of a process that does not do this now.
const NOTHING: i64 = 0;

static HELD: Mutex<Option<PidFile>> = Mutex::new(None);

/// Keeps a file until [`remove_held`], or until the process begins to exit: a process that is exiting must
/// not look as if it could still be woken.
pub fn hold(file: PidFile) {
    static AT_EXIT: Once = Once::new();
    *sync::lock(&HELD) = Some(file);
    // SAFETY: the callback stays loaded as long as the library; it runs before the process leaves the
    // activity view, and raises nothing.
    AT_EXIT.call_once(|| unsafe { pg_sys::before_shmem_exit(Some(at_exit), pg_sys::Datum::from(0)) });
}

/// Releases the file that [`hold`] keeps.
pub fn remove_held() {
    drop(sync::lock(&HELD).take());
}

/// Notes in the held file what the process is working on, for its successor if this process dies of it. May
/// be called off the main thread.
pub fn note(activity: Activity, work: Option<i64>) {
    if let Some(held) = sync::lock(&HELD).as_ref() {
        // A note that cannot be written does not justify a failure.
        let at = NOTES_AT + NOTE_BYTES * activity as u64;
        let _ = held.file.write_all_at(format!("{:<20}\n", work.unwrap_or(NOTHING)).as_bytes(), at);
    }
}

unsafe extern "C-unwind" fn at_exit(_code: i32, _arg: pg_sys::Datum) {
    remove_held();
}

/// The state of a pid file.
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
    /// Locks the file, or returns None if another process holds it.
    pub fn acquire(name: &str) -> io::Result<Option<PidFile>> {
        let path = path(name);
        // `presence` takes a shared lock for an instant, so this tries a few times.
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

/// The pid and the notes in a file, as far as it has them.
fn read(file: &mut File) -> (Option<i32>, Vec<i64>) {
    let mut text = String::new();
    let _ = file.read_to_string(&mut text);
    let mut words = text.split_whitespace();
    let pid = words.next().and_then(|word| word.parse().ok());
    (pid, words.filter_map(|word| word.parse().ok()).filter(|work| *work != NOTHING).collect())
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // The file is removed before the lock is released, so that no process finds an unlocked file of this
        // name.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether the named process runs, and its pid.
pub fn presence(name: &str) -> Presence {
    let Ok(mut file) = File::open(path(name)) else { return Presence::Absent };
    if lock(&file, libc::LOCK_SH) {
        return Presence::Absent;
    }
    // The file is empty because its holder is about to write its pid and to start its work.
    Presence::Running(read(&mut file).0.unwrap_or(0))
}

/// Ends the named process, if it runs, as a fast shutdown does.
pub fn terminate(name: &str) {
    if let Presence::Running(pid @ 1..) = presence(name) {
        // SAFETY: the lock proves that the process is alive and one of ours.
        unsafe { libc::kill(pid, libc::SIGTERM) };
    }
}

/// A named process that is woken often. Its file stays open, so that no file has to be looked up.
#[derive(Debug)]
pub struct Watched(Option<File>);

impl Watched {
    pub const fn new() -> Watched {
        Watched(None)
    }

    /// Sets the latch of the process. Returns false if it does not run. The name must be the same in every
    /// call.
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
            // SAFETY: the lock proves that the process is alive, and PostgreSQL's SIGUSR1 handler sets its
            // latch.
            Some(pid) => unsafe { libc::kill(pid, libc::SIGUSR1) == 0 },
        }
    }

    /// The pid of the process that has the open file locked, or 0 if the process is about to write it.
    fn pid(&mut self) -> Option<i32> {
        let file = self.0.as_ref()?;
        if lock(file, libc::LOCK_SH) {
            // Closing the file releases the lock.
            self.0 = None;
            return None;
        }
        let mut text = [0; NOTES_AT as usize];
        let length = file.read_at(&mut text, 0).unwrap_or(0);
        let text = std::str::from_utf8(&text[..length]).unwrap_or_default();
        Some(text.trim().parse().unwrap_or(0))
    }
}
