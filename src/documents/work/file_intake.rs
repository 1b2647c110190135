//! Documents that are files: the program kb-extract finds their texts, on threads of their own, so that a
//! file that takes long or hangs keeps no other documents back. A tenant has one thread at a time, so that
//! its files keep back no more than one of the programs.

use super::prepare::Document;
use crate::extract::Program;
use crate::jobs::queue::Job;
use crate::settings;
use crate::work::{Event, HelperThread, helper_thread};
use kb_types::error::{Error, Result};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Maximum number of threads, and of programs that run at the same time.
const THREADS: usize = 2;
/// A tenant has so many files in memory that wait, and so many bytes of them, but for a single one. All
/// tenants together have so many bytes, but for the last one.
const WAITING: usize = 32;
const WAITING_BYTES: usize = 2 * 1024 * 1024;
const ALL_BYTES: usize = 16 * 1024 * 1024;
/// Jobs that are kept without their files, because these would exceed that. No more are claimed of a
/// knowledge base that has many of them. What is more in all is given back for a while.
const HELD: usize = 64;
const HELD_OF_ONE: usize = 512;
const MOST_HELD: usize = 2048;
const GIVEN_BACK: Duration = Duration::from_secs(5);
/// After this time a thread leaves the rest of its files to another turn, and one that does not is slow.
const TURN: Duration = Duration::from_secs(1);

/// What became of a file.
type Read = Result<Document, (Job, Error)>;

struct Reading {
    tenant: String,
    /// Empty when they were given up: the end is waited for.
    jobs: Vec<Job>,
    since: Instant,
    /// What was read, and what is left.
    read: HelperThread<(Vec<Read>, Vec<Document>)>,
}

#[derive(Default)]
pub struct FileIntake {
    /// By tenant.
    waiting: BTreeMap<String, VecDeque<Document>>,
    reading: Vec<Reading>,
    /// With the sizes of their files.
    held: VecDeque<(Job, usize)>,
    /// The tenant that had the last turn.
    last: String,
}

fn bytes(documents: &VecDeque<Document>) -> usize {
    documents.iter().map(Document::size).sum()
}

impl FileIntake {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.reading.is_empty() && self.held.is_empty()
    }

    /// Whether a thread has ended.
    pub fn is_read(&mut self) -> bool {
        self.reading.iter_mut().any(|reading| reading.read.is_done())
    }

    /// Whether no more jobs should be claimed until files are read, which will not take long.
    pub fn is_full(&self) -> bool {
        self.held.len() >= HELD && self.reading.iter().all(|reading| reading.since.elapsed() < TURN)
    }

    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        let waiting = self.waiting.values().flatten().map(|document| &document.job);
        let held = self.held.iter().map(|(job, _)| job);
        waiting.chain(self.reading.iter().flat_map(|reading| &reading.jobs)).chain(held)
    }

    /// Knowledge bases of which so many files wait that no more documents of theirs are claimed.
    pub fn full_knowledge_bases(&self) -> Vec<i64> {
        let mut held: BTreeMap<i64, usize> = BTreeMap::new();
        self.held.iter().for_each(|(job, _)| *held.entry(job.kb_no).or_default() += 1);
        held.into_iter().filter(|(_, jobs)| *jobs >= HELD_OF_ONE).map(|(kb_no, _)| kb_no).collect()
    }

    /// Gives up all jobs.
    pub fn clear(&mut self) {
        self.waiting.clear();
        self.held.clear();
        self.reading.iter_mut().for_each(|reading| reading.jobs.clear());
    }

    fn has_room(&self, tenant: &str, size: usize) -> bool {
        let all = || self.waiting.values().map(bytes).sum::<usize>();
        match self.waiting.get(tenant) {
            None => all() <= ALL_BYTES,
            Some(own) => {
                own.len() < WAITING && bytes(own) + size <= WAITING_BYTES && all() + size <= ALL_BYTES
            }
        }
    }

    pub fn add(&mut self, document: Document, events: &mut Vec<Event>) {
        let tenant = &document.job.tenant_id;
        if self.has_room(tenant, document.size()) {
            self.waiting.entry(tenant.clone()).or_default().push_back(document);
        } else if self.held.len() < MOST_HELD {
            let size = document.size();
            self.held.push_back((document.job, size));
        } else {
            events.push(Event::GivenBack { jobs: vec![document.job], delay: GIVEN_BACK });
        }
    }

    /// Takes jobs whose files have room by now. They are to be read again.
    pub fn take_held(&mut self, most: usize) -> Vec<Job> {
        let mut taken = Vec::new();
        for (job, size) in std::mem::take(&mut self.held) {
            match taken.len() < most && self.has_room(&job.tenant_id, size) {
                true => taken.push(job),
                false => self.held.push_back((job, size)),
            }
        }
        taken
    }

    /// Returns files whose texts were found; whether a thread has ended.
    pub fn settle(&mut self, events: &mut Vec<Event>) -> Result<(Vec<Document>, bool)> {
        let (mut documents, mut moved, mut failed) = (Vec::new(), false, Ok(()));
        for mut reading in std::mem::take(&mut self.reading) {
            let Some(read) = reading.read.take() else {
                self.reading.push(reading);
                continue;
            };
            moved = true;
            match read {
                _ if reading.jobs.is_empty() => {}
                Ok((read, left)) => {
                    for result in read {
                        match result {
                            Ok(document) => documents.push(document),
                            Err((job, error)) => events.push(Event::failed(job, error)),
                        }
                    }
                    let waiting = self.waiting.entry(reading.tenant).or_default();
                    left.into_iter().rev().for_each(|document| waiting.push_front(document));
                }
                Err(error) => failed = Err(error),
            }
        }
        self.waiting.retain(|_, waiting| !waiting.is_empty());
        failed.map(|()| (documents, moved))
    }

    /// Begins to read files of tenants that have no thread, in turns; whether any was begun. Unless it
    /// `may_begin`, what is not begun is given back.
    pub fn begin(&mut self, may_begin: bool, events: &mut Vec<Event>) -> Result<bool> {
        if !may_begin {
            let waiting = std::mem::take(&mut self.waiting).into_values().flatten();
            let held = std::mem::take(&mut self.held).into_iter().map(|(job, _)| job);
            let jobs: Vec<Job> = waiting.map(|document| document.job).chain(held).collect();
            events.push(Event::GivenBack { jobs, delay: Duration::ZERO });
            return Ok(false);
        }
        let mut has_begun = false;
        while self.reading.len() < THREADS
            && let Some(tenant) = self.next_tenant()
        {
            let documents = self.waiting.remove(&tenant).unwrap_or_default();
            let jobs = documents.iter().map(|document| document.job.clone()).collect();
            let (program, max_text) = (Program::from_settings(), settings::limits(|| {}).bytes);
            let read = helper_thread::begin(move || read(documents, &program, max_text))?;
            self.last.clone_from(&tenant);
            self.reading.push(Reading { tenant, jobs, since: Instant::now(), read });
            has_begun = true;
        }
        Ok(has_begun)
    }

    fn next_tenant(&self) -> Option<String> {
        let is_free = |tenant: &&String| self.reading.iter().all(|reading| reading.tenant != **tenant);
        let later = self.waiting.keys().filter(|tenant| **tenant > self.last);
        let earlier = self.waiting.keys().filter(|tenant| **tenant <= self.last);
        later.chain(earlier).find(is_free).cloned()
    }
}

/// Finds the texts of files, until the turn is over or there is much text.
fn read(files: VecDeque<Document>, program: &Program, max_text: usize) -> (Vec<Read>, Vec<Document>) {
    let (begin, mut read, mut files) = (Instant::now(), Vec::new(), files);
    let mut bytes = 0;
    while let Some(document) = files.pop_front() {
        let job = document.job.clone();
        let document = document.read_file(program, max_text).map_err(|error| (job, error));
        bytes += document.as_ref().map_or(0, Document::size);
        read.push(document);
        if begin.elapsed() >= TURN || bytes >= WAITING_BYTES {
            break;
        }
    }
    (read, files.into())
}
