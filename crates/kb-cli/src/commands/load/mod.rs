//! `kb load`: puts files of this machine into a knowledge base.
//!
//! What is on the server is the only state: an interrupted load continues with the same command, from any
//! machine, because files are compared with the hashes that the server has. A document that a load has put is
//! known by its URI, which begins with `file:`; only such documents are ever deleted.

mod file;
mod progress;
mod selection;
pub mod send;
mod sql;
pub mod tally;
pub mod target;
mod watch;

pub use file::{Content, Document, Reading, content_hash};
pub use progress::Progress;

use crate::context::Context;
use crate::exit::{Error, Exit, Result};
use file::Reader;
use selection::{Found, Listing, Selection};
use send::{Read, Sender, Source, is_of_connection};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tally::{Failure, Tally, grouped};
use target::{Connection, Target};
use watch::Watcher;

/// The most files and bytes that are read at once for one connection.
const BATCH: usize = 500;
const BATCH_BYTES: u64 = 4 << 20;
/// How many documents one call deletes.
const DELETED: usize = 1000;
/// After how long a watching load tries again if the server cannot be reached.
const AGAIN: Duration = Duration::from_secs(5);

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The id of the knowledge base
    #[arg(value_name = "ID")]
    kb: String,
    /// Files, folders and patterns in quotes
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// The folder below which paths become external_ids [default: the current folder]
    #[arg(long, value_name = "FOLDER")]
    root: Option<PathBuf>,
    /// A folder name to put before each path in the external_id
    #[arg(long, value_name = "NAME")]
    prefix: Option<String>,
    /// The number of connections
    #[arg(short, long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    jobs: u8,
    /// Delete documents that a load has put below PATHS and whose files are gone
    #[arg(long)]
    delete: bool,
    /// Delete even if a folder is missing or empty, or a pattern matches nothing
    #[arg(long, requires = "delete")]
    force: bool,
    /// Go on watching, and put what changes, until Ctrl-C
    #[arg(long)]
    watch: bool,
    /// Take hidden files and folders, too
    #[arg(long)]
    hidden: bool,
    /// Follow symbolic links in folders
    #[arg(long)]
    follow_links: bool,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit> {
    let selection = Selection::new(args.root.as_deref(), &args.paths, args.follow_links, args.hidden);
    let selection = Arc::new(selection.map_err(Error::usage)?);
    let target = Target::find(&context.connect().await?, &args.kb).await?;
    let prefix = args.prefix.as_deref().map(|prefix| prefix.trim_end_matches('/'));
    let prefix = prefix.filter(|prefix| !prefix.is_empty()).map(|prefix| format!("{prefix}/"));
    let load = Load {
        args: &args,
        context,
        selection: &selection,
        target: &target,
        prefix: prefix.unwrap_or_default(),
        is_stopped: AtomicBool::new(false),
    };
    let work = async {
        match args.watch {
            false => load.once().await,
            true => load.watch().await,
        }
    };
    stopping(&load.is_stopped, work).await
}

/// Runs a load. At Ctrl-C it ends what it has begun, and at the second Ctrl-C it ends at once.
async fn stopping(is_stopped: &AtomicBool, work: impl Future<Output = Result<Exit>>) -> Result<Exit> {
    tokio::pin!(work);
    tokio::select! {
        done = &mut work => return done,
        _ = tokio::signal::ctrl_c() => is_stopped.store(true, Ordering::Relaxed),
    }
    tokio::select! {
        done = &mut work => done,
        _ = tokio::signal::ctrl_c() => Err(Error::failed("interrupted")),
    }
}

struct Load<'a> {
    args: &'a Args,
    context: &'a Context,
    selection: &'a Arc<Selection>,
    target: &'a Target,
    /// It ends in a slash, or is empty.
    prefix: String,
    is_stopped: AtomicBool,
}

/// What a round has done, and the error that ended it early.
struct Round {
    tally: Tally,
    ended: Result<()>,
    took: Duration,
}

impl Load<'_> {
    async fn once(&self) -> Result<Exit> {
        let listing = self.list().await?;
        self.refuse_empty(&listing)?;
        let round = self.round(listing, None).await;
        self.report(&round)?;
        round.ended?;
        if round.tally.was_interrupted {
            return Err(Error::failed("interrupted"));
        }
        match round.tally.failures.len() {
            0 => Ok(Exit::Done),
            failed => Err(Error::failed(format!(
                "{} of {} files failed",
                grouped(failed as u64),
                grouped(round.tally.files)
            ))),
        }
    }

    async fn watch(&self) -> Result<Exit> {
        // It begins before the files are listed, so that no change is missed.
        let mut watcher = Watcher::begin(self.selection)?;
        let listing = self.list().await?;
        self.refuse_empty(&listing)?;
        let mut changes = watcher.everything(listing);
        let mut is_first = true;
        while !self.is_stopped() {
            let missing = (!is_first).then(|| std::mem::take(&mut changes.missing));
            let listing = std::mem::take(&mut changes.listing);
            let files = listing.files.clone();
            let round = self.round(listing, missing.clone()).await;
            let is_worth_a_line = round.tally.has_changed() || !round.tally.failures.is_empty();
            if is_first || is_worth_a_line {
                self.report(&round)?;
            }
            let again = match round.ended {
                Ok(()) => {
                    watcher.knows(changes);
                    None
                }
                Err(error) if !is_first && is_of_connection(&error) => {
                    self.context.output.note(&format!("{}; trying again", error.message));
                    self.or_stop(tokio::time::sleep(AGAIN)).await;
                    changes.listing.files = files;
                    Some(changes)
                }
                Err(error) => return Err(error),
            };
            if is_first {
                self.context.output.note("watching; Ctrl-C ends");
            }
            is_first = false;
            if again.is_none() {
                self.or_stop(watcher.wait()).await;
            }
            if self.is_stopped() {
                break;
            }
            changes = watcher.changes(again)?;
        }
        Ok(Exit::Done)
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Waits for something. None: the load is to end.
    async fn or_stop<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let stop = async {
            while !self.is_stopped() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::select! {
            done = future => Some(done),
            () = stop => None,
        }
    }

    async fn list(&self) -> Result<Listing> {
        let selection = Arc::clone(self.selection);
        let listing = tokio::task::spawn_blocking(move || selection.list()).await;
        listing.map_err(|error| Error::failed(error.to_string()))
    }

    /// A folder that is not mounted is empty: its documents must not be deleted for that.
    fn refuse_empty(&self, listing: &Listing) -> Result<()> {
        if !self.args.delete || self.args.force || listing.empty.is_empty() {
            return Ok(());
        }
        let empty = listing.empty.join(", ");
        Err(Error::failed(format!(
            "no files in {empty}, so --delete would delete all documents of it; nothing was done"
        ))
        .hint("With --force, they are deleted."))
    }

    /// Puts the files, and deletes the documents whose files are gone: of these paths (`missing`), or of all.
    async fn round(&self, listing: Listing, missing: Option<Vec<String>>) -> Round {
        let begun = Instant::now();
        let Listing { files, problems, empty, links } = listing;
        let progress = Progress::new(
            files.len() as u64,
            files.iter().map(|found| found.stamp.size).sum(),
            self.context.output.draws_progress() && !files.is_empty(),
        );
        let mut tally = Tally { files: (files.len() + problems.len()) as u64, links, ..Tally::default() };
        for problem in problems {
            progress.note(&format!("{}: {}", problem.path, problem.problem));
            tally.failures.push(Failure { path: problem.path, error: problem.problem, sqlstate: None });
        }
        let jobs = usize::from(self.args.jobs).min(files.len());
        let source = Files {
            selection: Arc::clone(self.selection),
            prefix: self.prefix.clone(),
            most: self.target.most,
            takes_all: self.target.takes_all,
            waiting: Mutex::new(files.into_iter()),
        };
        let sender = Sender {
            context: self.context,
            target: self.target,
            source: Arc::new(source),
            progress: &progress,
            is_stopped: &self.is_stopped,
            tally: Mutex::new(tally),
        };
        let mut ended = sender.send(jobs).await;
        progress.finish();
        let mut tally = sender.tally.into_inner().unwrap_or_else(PoisonError::into_inner);
        tally.was_interrupted = self.is_stopped();
        if ended.is_ok() && self.args.delete && !self.is_stopped() {
            match missing {
                Some(missing) if missing.is_empty() => {}
                _ if !self.args.force && !empty.is_empty() => {
                    let note = format!("no files in {}: nothing is deleted", empty.join(", "));
                    self.context.output.note(&note);
                }
                missing => match self.delete(missing.as_deref()).await {
                    Ok(deleted) => tally.deleted = deleted,
                    Err(error) => ended = Err(error),
                },
            }
        }
        Round { tally, ended, took: begun.elapsed() }
    }

    /// Deletes documents that a load has put and whose files are gone. Returns their number.
    async fn delete(&self, missing: Option<&[String]>) -> Result<u64> {
        let connection = Connection::begin(self.target, self.context.connect().await?).await?;
        let mut gone = Vec::new();
        match missing {
            Some(missing) => {
                let ids: Vec<String> = (missing.iter())
                    .filter(|path| self.selection.is_gone(path))
                    .map(|path| format!("{}{path}", self.prefix))
                    .collect();
                for ids in ids.chunks(DELETED) {
                    gone.extend(connection.loaded_of(ids).await?);
                }
            }
            None => {
                let scope = format!("{}{}", self.prefix, self.selection.common_prefix());
                let mut loaded = connection.loaded(&scope);
                while let Some(ids) = loaded.next().await? {
                    gone.extend(ids.into_iter().filter(|id| {
                        let path = id.strip_prefix(&self.prefix);
                        path.is_some_and(|path| self.selection.covers(path) && self.selection.is_gone(path))
                    }));
                }
            }
        }
        let mut deleted = 0;
        for ids in gone.chunks(DELETED) {
            deleted += connection.delete(ids).await?;
        }
        Ok(deleted)
    }

    fn report(&self, round: &Round) -> Result<()> {
        if round.ended.is_err() && !round.tally.has_changed() {
            return Ok(());
        }
        let output = &self.context.output;
        match output.json {
            true => output.json(&round.tally.json(round.took).to_string()),
            false => output.text(&(round.tally.lines(round.took).join("\n") + "\n")),
        }
    }
}

/// The files of a listing.
struct Files {
    selection: Arc<Selection>,
    prefix: String,
    most: Option<u64>,
    takes_all: bool,
    waiting: Mutex<std::vec::IntoIter<Found>>,
}

impl Source for Files {
    type Item = Found;

    fn take(&self) -> Vec<Found> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while taken.len() < BATCH && bytes < BATCH_BYTES {
            let Some(found) = waiting.next() else { break };
            bytes += found.stamp.size;
            taken.push(found);
        }
        taken
    }

    fn read(&self, found: Found) -> Read {
        let reader = Reader { prefix: &self.prefix, most: self.most, takes_all: self.takes_all };
        let reading = reader.read(&found, &self.selection.place(&found.path));
        Read { size: found.stamp.size, path: found.path, reading }
    }
}
