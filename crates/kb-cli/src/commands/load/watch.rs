//! Notices changes of the selected files. What has changed is found by listing them again, so that nothing is
//! missed if the operating system drops notices; the notices say when, and which files to read in any case.

use super::selection::{Found, Listing, Selection, Stamp};
use crate::exit::{Error, Result};
use notify::event::{AccessKind, AccessMode};
use notify::{Config, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Changes are put when there have been no others for so long, so that a file is not read while it is
/// written.
const QUIET: Duration = Duration::from_millis(300);
/// But not later than this after the first of them.
const LATEST: Duration = Duration::from_secs(3);
/// How often to look whether a watched folder has been removed or replaced.
const CHECK: Duration = Duration::from_secs(1);
/// With more notices than this at once, all files are read.
const MANY: usize = 100_000;

/// What has been noticed and not been looked at yet.
#[derive(Debug, Default)]
struct Noticed {
    paths: HashSet<PathBuf>,
    is_everything: bool,
    last: Option<Instant>,
}

/// A folder, whether all below it is watched, and its identity, which changes if another one takes its place.
type Watched = (PathBuf, bool, Option<(u64, u64)>);

pub struct Watcher<'a> {
    selection: &'a Selection,
    noticed: Arc<Mutex<Noticed>>,
    notify: Arc<Notify>,
    watcher: Option<RecommendedWatcher>,
    watched: Vec<Watched>,
    known: HashMap<String, Stamp>,
}

/// What has changed since the last time.
#[derive(Debug, Default)]
pub struct Changes {
    pub listing: Listing,
    /// Files that were there and are no longer listed.
    pub missing: Vec<String>,
    seen: HashMap<String, Stamp>,
    /// Whether what is missing may come back, as with a folder that is not mounted.
    is_doubtful: bool,
}

impl<'a> Watcher<'a> {
    pub fn begin(selection: &'a Selection) -> Result<Watcher<'a>> {
        let mut watcher = Watcher {
            selection,
            noticed: Arc::default(),
            notify: Arc::default(),
            watcher: None,
            watched: Vec::new(),
            known: HashMap::new(),
        };
        watcher.watch()?;
        Ok(watcher)
    }

    fn watch(&mut self) -> Result<()> {
        let (noticed, notify) = (Arc::clone(&self.noticed), Arc::clone(&self.notify));
        let config = Config::default().with_follow_symlinks(self.selection.follows_links());
        let mut watcher = RecommendedWatcher::new(move |event| take(&noticed, &notify, event), config)
            .map_err(|error| refused(&error))?;
        self.watched = self.wanted();
        for (path, is_deep, _) in &self.watched {
            let mode = if *is_deep { RecursiveMode::Recursive } else { RecursiveMode::NonRecursive };
            match watcher.watch(path, mode) {
                Ok(()) => {}
                // It may come later.
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(refused(&error)),
            }
        }
        self.watcher = Some(watcher);
        Ok(())
    }

    fn wanted(&self) -> Vec<Watched> {
        let wanted = self.selection.watched().into_iter();
        wanted.map(|(path, is_deep)| (path.clone(), is_deep, identity(&path))).collect()
    }

    /// Says that what was listed has been put.
    pub fn knows(&mut self, changes: Changes) {
        let before = std::mem::replace(&mut self.known, changes.seen);
        if changes.is_doubtful {
            for (path, stamp) in before {
                self.known.entry(path).or_insert(stamp);
            }
        }
    }

    /// Everything that is there now.
    pub fn everything(&self, listing: Listing) -> Changes {
        let seen = listing.files.iter().map(|found| (found.path.clone(), found.stamp)).collect();
        Changes { listing, missing: Vec::new(), seen, is_doubtful: false }
    }

    /// Waits until something has changed, and then until nothing changes for a moment.
    pub async fn wait(&self) {
        loop {
            let in_time = tokio::time::timeout(CHECK, self.notify.notified()).await.is_ok();
            if in_time || self.wanted() != self.watched {
                break;
            }
        }
        let begun = Instant::now();
        loop {
            let last = self.noticed.lock().unwrap_or_else(PoisonError::into_inner).last;
            let quiet = last.map_or(QUIET, |last| last.elapsed());
            if quiet >= QUIET || begun.elapsed() >= LATEST {
                return;
            }
            tokio::time::sleep(QUIET - quiet).await;
        }
    }

    /// Lists what has changed. Called again without [`Watcher::knows`] in between, it lists the same again.
    pub fn changes(&mut self, earlier: Option<Changes>) -> Result<Changes> {
        if self.wanted() != self.watched {
            self.watch()?;
        }
        let noticed = std::mem::take(&mut *self.noticed.lock().unwrap_or_else(PoisonError::into_inner));
        let mut dirty: HashSet<String> =
            noticed.paths.iter().filter_map(|path| self.selection.path_of(path)).collect();
        dirty.extend(earlier.into_iter().flat_map(|earlier| earlier.listing.files).map(|found| found.path));
        let mut listing = self.selection.list();
        let seen: HashMap<String, Stamp> =
            listing.files.iter().map(|found| (found.path.clone(), found.stamp)).collect();
        let is_changed = |found: &Found| {
            noticed.is_everything
                || dirty.contains(&found.path)
                || self.known.get(&found.path) != Some(&found.stamp)
        };
        listing.files.retain(is_changed);
        let is_doubtful = !listing.empty.is_empty();
        let missing = self.known.keys().filter(|path| !seen.contains_key(*path)).cloned().collect();
        Ok(Changes { listing, missing, seen, is_doubtful })
    }
}

fn take(noticed: &Mutex<Noticed>, notify: &Notify, event: notify::Result<notify::Event>) {
    let mut noticed = noticed.lock().unwrap_or_else(PoisonError::into_inner);
    match event {
        Ok(event) => match event.kind {
            // The program reads the files itself.
            EventKind::Access(kind) if kind != AccessKind::Close(AccessMode::Write) => return,
            _ if event.need_rescan() => noticed.is_everything = true,
            _ => noticed.paths.extend(event.paths),
        },
        Err(_) => noticed.is_everything = true,
    }
    if noticed.paths.len() > MANY {
        noticed.paths.clear();
        noticed.is_everything = true;
    }
    noticed.last = Some(Instant::now());
    notify.notify_one();
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

fn is_missing(error: &notify::Error) -> bool {
    match &error.kind {
        notify::ErrorKind::PathNotFound => true,
        notify::ErrorKind::Io(error) => error.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    }
}

fn refused(error: &notify::Error) -> Error {
    let refused = Error::failed(format!("cannot watch the files: {error}"));
    match error.kind {
        notify::ErrorKind::MaxFilesWatch => {
            refused.hint("Raise the limit of the operating system, on Linux fs.inotify.max_user_watches.")
        }
        _ => refused,
    }
}
