//! Sends documents over several connections: looks which of them are unchanged, puts the others in groups,
//! and, where the server refuses a group, finds out which documents are to blame.

use super::file::{Content, Document, Reading};
use super::progress::Progress;
use super::tally::{Failure, Tally};
use super::target::{Connection, Fault, Put, Target};
use crate::context::Context;
use crate::exit::{Error, Kind, Result};
use futures_util::future::try_join_all;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_postgres::error::SqlState;

/// The most documents and bytes of one call, which is one transaction.
const GROUP: usize = 100;
const GROUP_BYTES: u64 = 1 << 20;
/// How often a connection that was lost is opened again, and a transaction that was in the way of another is
/// repeated, without success in between.
const TRIES: u32 = 12;

/// Where documents come from.
pub trait Source: Send + Sync + 'static {
    type Item: Send + 'static;
    /// The next items, about as many as fit into a few megabytes. None: there are no more.
    fn take(&self) -> Vec<Self::Item>;
    fn read(&self, item: Self::Item) -> Read;
}

/// What became of reading an item.
pub struct Read {
    /// What it is called in messages.
    pub path: String,
    /// Its part of the progress.
    pub size: u64,
    pub reading: Reading,
}

/// Documents that are put together, and what they are called in messages.
struct Group {
    documents: Vec<Document>,
    /// Whether those that are unchanged have been left out.
    is_checked: bool,
}

/// What a call over a group has answered.
enum Answer {
    Unchanged(Vec<Option<bool>>),
    Put(Vec<Put>),
}

pub struct Sender<'a, S> {
    pub context: &'a Context,
    pub target: &'a Target,
    pub source: Arc<S>,
    pub progress: &'a Progress,
    /// Set when no more is to be begun.
    pub is_stopped: &'a AtomicBool,
    pub tally: Mutex<Tally>,
}

impl<S: Source> Sender<'_, S> {
    /// Sends everything over this many connections.
    pub async fn send(&self, jobs: usize) -> Result<()> {
        try_join_all((0..jobs).map(|_| self.work())).await.map(drop)
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn work(&self) -> Result<()> {
        let mut connection = None;
        while !self.is_stopped.load(Ordering::Relaxed) {
            let source = Arc::clone(&self.source);
            let read = move || {
                let items = source.take();
                items.into_iter().map(|item| source.read(item)).collect::<Vec<Read>>()
            };
            let read =
                tokio::task::spawn_blocking(read).await.map_err(|error| Error::failed(error.to_string()))?;
            if read.is_empty() {
                break;
            }
            let documents = self.sort_out(read);
            self.put_all(&mut connection, documents).await?;
        }
        Ok(())
    }

    /// The documents that could be read.
    fn sort_out(&self, read: Vec<Read>) -> Vec<Document> {
        let mut documents = Vec::with_capacity(read.len());
        for Read { path, size, reading } in read {
            match reading {
                Reading::Ready(document) => {
                    documents.push(document);
                    continue;
                }
                Reading::LeftOut => self.tally().left_out += 1,
                Reading::Gone => self.tally().vanished += 1,
                Reading::Failed(error) => self.fail(path, error, None),
            }
            self.progress.advance(size);
        }
        documents
    }

    fn fail(&self, path: String, error: String, sqlstate: Option<String>) {
        self.progress.note(&format!("{path}: {error}"));
        self.tally().failures.push(Failure { path, error, sqlstate });
    }

    /// Puts documents. The error is one that concerns all documents.
    async fn put_all<'a>(
        &'a self,
        connection: &mut Option<Connection<'a>>,
        documents: Vec<Document>,
    ) -> Result<()> {
        let mut waiting = vec![Group { documents, is_checked: false }];
        let mut tries = 0;
        while let Some(mut group) = waiting.pop() {
            if group.documents.is_empty() {
                continue;
            }
            let open = match connection {
                Some(open) => open,
                None => match self.open().await {
                    Ok(open) => connection.insert(open),
                    Err(error) if is_of_connection(&error) && (1..TRIES).contains(&tries) => {
                        waiting.push(group);
                        pause(&mut tries).await;
                        continue;
                    }
                    Err(error) => return Err(error),
                },
            };
            match ask(open, &group).await {
                Ok(Answer::Unchanged(unchanged)) => waiting.extend(self.changed(group.documents, unchanged)),
                Ok(Answer::Put(put)) => {
                    tries = 0;
                    self.count(&group.documents, &put);
                }
                Err(Fault::File(error)) => {
                    for document in group.documents {
                        match error.kind() {
                            std::io::ErrorKind::NotFound => self.tally().vanished += 1,
                            _ => self.fail(document.path, error.to_string(), None),
                        }
                        self.progress.advance(document.listed_size);
                    }
                }
                // The interrupt cancels what is under way.
                Err(Fault::Server(error))
                    if self.is_stopped.load(Ordering::Relaxed)
                        && error.code() == Some(&SqlState::QUERY_CANCELED) =>
                {
                    return Ok(());
                }
                Err(Fault::Server(error)) => match concern(&error) {
                    Concern::Connection | Concern::Moment if tries >= TRIES => return Err(error.into()),
                    Concern::Connection => {
                        *connection = None;
                        waiting.push(group);
                        pause(&mut tries).await;
                    }
                    Concern::Moment => {
                        waiting.push(group);
                        pause(&mut tries).await;
                    }
                    Concern::All => return Err(error.into()),
                    Concern::Documents if group.documents.len() > 1 => {
                        let documents = group.documents.split_off(group.documents.len() / 2);
                        waiting.push(Group { documents, is_checked: group.is_checked });
                        waiting.push(group);
                    }
                    Concern::Documents => {
                        let error = Error::from(error);
                        let message = match error.detail {
                            Some(detail) => format!("{}: {detail}", error.message),
                            None => error.message,
                        };
                        for document in group.documents {
                            self.progress.advance(document.listed_size);
                            self.fail(document.path, message.clone(), error.sqlstate.clone());
                        }
                    }
                },
            }
        }
        Ok(())
    }

    async fn open(&self) -> Result<Connection<'_>> {
        Ok(Connection::begin(self.target, self.context.connect().await?).await?)
    }

    /// The documents that have changed, in groups of one kind. Those that have not are counted.
    fn changed(&self, documents: Vec<Document>, unchanged: Vec<Option<bool>>) -> Vec<Group> {
        let (mut texts, mut files, mut larges) = (Vec::new(), Vec::new(), Vec::new());
        for (document, unchanged) in documents.into_iter().zip(unchanged) {
            let Some(has_failed) = unchanged else {
                match &document.content {
                    Content::Text { .. } => texts.push(document),
                    Content::File { .. } => files.push(document),
                    Content::Large { .. } => larges.push(document),
                }
                continue;
            };
            self.progress.advance(document.listed_size);
            let mut tally = self.tally();
            tally.unchanged += 1;
            tally.unchanged_failed += u64::from(has_failed);
        }
        let larges = larges.into_iter().map(|document| vec![document]);
        let groups = grouped(texts).into_iter().chain(grouped(files)).chain(larges);
        groups.map(|documents| Group { documents, is_checked: true }).collect()
    }

    fn count(&self, documents: &[Document], put: &[Put]) {
        for (document, put) in documents.iter().zip(put) {
            self.progress.advance(document.listed_size);
            let mut tally = self.tally();
            tally.bytes_sent += document.size;
            match put {
                Put::Added => tally.added += 1,
                Put::Updated => tally.updated += 1,
                Put::Skipped => tally.unchanged += 1,
            }
        }
    }
}

async fn ask(connection: &mut Connection<'_>, group: &Group) -> std::result::Result<Answer, Fault> {
    Ok(match group.is_checked {
        false => Answer::Unchanged(connection.unchanged(&group.documents).await?),
        true => Answer::Put(connection.put(&group.documents).await?),
    })
}

/// Waits for longer each time.
async fn pause(tries: &mut u32) {
    tokio::time::sleep(Duration::from_millis(50 << (*tries).min(6))).await;
    *tries += 1;
}

fn grouped(documents: Vec<Document>) -> Vec<Vec<Document>> {
    let mut groups: Vec<Vec<Document>> = Vec::new();
    let mut bytes = 0;
    for document in documents {
        match groups.last_mut().filter(|group| group.len() < GROUP && bytes + document.size <= GROUP_BYTES) {
            Some(group) => {
                bytes += document.size;
                group.push(document);
            }
            None => {
                bytes = document.size;
                groups.push(vec![document]);
            }
        }
    }
    groups
}

/// Whether another connection may work.
pub fn is_of_connection(error: &Error) -> bool {
    let codes = ["08", "57P"];
    let code = error.sqlstate.as_deref().unwrap_or_default();
    error.kind == Kind::Connection || codes.iter().any(|class| code.starts_with(class))
}

/// What an error of the server concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Concern {
    /// Documents of this call: others can be put.
    Documents,
    /// The connection is lost: another one may work.
    Connection,
    /// Other transactions that are in the way: it can be repeated.
    Moment,
    /// Everything: the right to write is missing, the quota is used up, the disk is full, ….
    All,
}

fn concern(error: &tokio_postgres::Error) -> Concern {
    let Some(code) = error.code() else { return Concern::Connection };
    match *code {
        SqlState::T_R_SERIALIZATION_FAILURE
        | SqlState::T_R_DEADLOCK_DETECTED
        | SqlState::LOCK_NOT_AVAILABLE => Concern::Moment,
        SqlState::ADMIN_SHUTDOWN | SqlState::CRASH_SHUTDOWN | SqlState::CANNOT_CONNECT_NOW => {
            Concern::Connection
        }
        SqlState::OUT_OF_MEMORY => Concern::Documents,
        _ => match code.code().get(..2) {
            Some("08") => Concern::Connection,
            Some("0A" | "22" | "23" | "54" | "55" | "58" | "XX") => Concern::Documents,
            _ => Concern::All,
        },
    }
}
