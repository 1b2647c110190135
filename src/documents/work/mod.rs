//! Documents as a kind of work: jobs are read in groups, prepared and written; the chunks that have no vector
//! are reported.
//!
//! One group is prepared at a time, on a helper thread. Meanwhile the main thread writes the group before,
//! and what comes back from the gateway. The first group after a pause is small, so that embedding begins
//! soon. Files are read before that (`file_intake.rs`). A document that an open transaction has locked is
//! given back, for longer each time.

mod compare;
mod consult;
mod file_intake;
mod file_text;
mod finish;
mod parts;
mod prepare;
mod slow_intake;

use crate::documents::stored;
use crate::jobs::queue;
use crate::jobs::queue::Job;
use crate::pg::pidfile::{self, Activity};
use crate::pg::txn;
use crate::upkeep::Log;
use crate::vectors::upkeep::Statistics;
use crate::work::{
    BUSY, Destination, Event, Feed, Group, HelperThread, Pauses, Progress, Targets, Work, Written,
    helper_thread, without_reported,
};
use file_intake::FileIntake;
use kb_text::diff::Diff;
use kb_text::model_answers::Consulted;
use kb_types::error::{Error, Result};
use kb_types::row_states::Priority;
use prepare::{Document, Means, Prepared};
use slow_intake::SlowIntake;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::Duration;

/// A group of documents is prepared together up to this many bytes: few in the first group after a pause, so
/// that vectors are computed while the next is prepared, and twice as many each time.
const GROUP_BYTES: usize = 2 * 1024 * 1024;
const FIRST_GROUP_BYTES: usize = 16 * 1024;
const GROUP_DOCUMENTS: usize = 32;
/// How many documents are remembered that an open transaction had locked.
const FOUND_BUSY: usize = 100_000;

type Results = Vec<Result<Prepared, (Job, Error)>>;

/// A group of documents that is being prepared.
struct Preparing {
    /// Empty when the group was given up: its end is waited for.
    jobs: Vec<Job>,
    results: HelperThread<Results>,
}

pub struct DocumentWork {
    /// What makes documents of something else.
    feeds: Vec<Box<dyn Feed>>,
    claimed: VecDeque<Job>,
    preparing: Option<Preparing>,
    /// What is prepared, and to be written next.
    prepared: Results,
    /// Groups that were prepared since nothing was claimed last.
    groups: u32,
    files: FileIntake,
    /// Files whose texts are found.
    read: VecDeque<Document>,
    slow: SlowIntake,
    statistics: Statistics,
    /// By job_no, how often an open transaction had locked the document.
    found_busy: HashMap<i64, u32>,
    log: Log,
}

impl Work for DocumentWork {
    fn kind(&self) -> &'static str {
        "document"
    }

    fn take_up(&mut self) -> Result<()> {
        self.feeds.iter_mut().try_for_each(|feed| feed.take_up())
    }

    fn is_wanted(&self) -> Result<bool> {
        self.feeds.iter().try_fold(false, |wanted, feed| Ok(wanted || feed.is_wanted()?))
    }

    fn wants_jobs(&self) -> bool {
        self.claimed.is_empty() && !self.files.is_full()
    }

    fn full_embedders(&self) -> Vec<String> {
        self.slow.full_embedders()
    }

    fn full_knowledge_bases(&self) -> Vec<i64> {
        [self.files.full_knowledge_bases(), self.slow.full_knowledge_bases()].concat()
    }

    fn take(&mut self, jobs: Vec<Job>) {
        self.claimed.extend(jobs);
    }

    /// Reads a group of documents and has it prepared.
    fn begin(&mut self, events: &mut Vec<Event>) -> Result<bool> {
        let mut group = self.take_read();
        if group.is_empty() {
            let held = self.files.take_held(GROUP_DOCUMENTS);
            held.into_iter().rev().for_each(|job| self.claimed.push_front(job));
            if self.claimed.is_empty() {
                self.groups = 0;
                return Ok(false);
            }
            group = self.read_group(events)?;
        }
        self.prepare(group, events)?;
        Ok(true)
    }

    fn collect(&mut self) -> Result<Progress> {
        let Some(preparing) = &mut self.preparing else { return Ok(Progress::Nothing) };
        let Some(results) = preparing.results.take() else { return Ok(Progress::Preparing) };
        let is_given_up = preparing.jobs.is_empty();
        self.preparing = None;
        if is_given_up {
            return Ok(Progress::Nothing);
        }
        self.prepared.extend(results?);
        Ok(Progress::Prepared)
    }

    fn settle(&mut self, events: &mut Vec<Event>) -> Result<bool> {
        let (read, has_read) = self.files.settle(events)?;
        self.read.extend(read);
        let (prepared, has_prepared) = self.slow.settle(events)?;
        self.prepared.extend(prepared.into_iter().map(Ok));
        Ok(has_read || has_prepared)
    }

    fn ask_models(&mut self, may_begin: bool, pauses: &Pauses, events: &mut Vec<Event>) -> Result<bool> {
        // What was read takes memory until it is prepared.
        let mut has_begun = (self.read.is_empty() || !may_begin) && self.files.begin(may_begin, events)?;
        // A file that takes long is written, too, before the worker leaves.
        if !may_begin && self.preparing.is_none() && !self.read.is_empty() {
            let group = self.take_read();
            self.prepare(group, events)?;
            has_begun = true;
        }
        Ok(self.slow.ask(may_begin, pauses, events)? || has_begun)
    }

    fn write(&mut self, events: &mut Vec<Event>) -> Result<()> {
        let mut prepared = Vec::new();
        for result in std::mem::take(&mut self.prepared) {
            match result {
                Ok(document) => prepared.push(document),
                Err((job, error)) => events.push(Event::failed(job, error)),
            }
        }
        self.write_group(prepared, None, events)
    }

    fn jobs(&self) -> Vec<Job> {
        let preparing = self.preparing.iter().flat_map(|preparing| &preparing.jobs);
        let read = self.read.iter().map(|document| &document.job);
        let files = read.chain(self.files.jobs());
        self.claimed.iter().chain(preparing).chain(files).chain(self.slow.jobs()).cloned().collect()
    }

    fn coming(&self) -> HashSet<i64> {
        let preparing = self.preparing.iter().flat_map(|preparing| &preparing.jobs);
        self.claimed.iter().chain(preparing).map(|job| job.kb_no).collect()
    }

    fn is_idle(&self) -> bool {
        let has_files = !self.read.is_empty() || !self.files.is_empty();
        self.claimed.is_empty() && self.preparing.is_none() && self.slow.is_empty() && !has_files
    }

    fn is_preparing(&self) -> bool {
        self.preparing.is_some() || !self.slow.is_empty() || !self.read.is_empty() || !self.files.is_empty()
    }

    fn is_prepared(&mut self) -> bool {
        self.preparing.as_mut().is_some_and(|preparing| preparing.results.is_done())
            || self.slow.is_prepared()
            || self.files.is_read()
    }

    fn clear(&mut self) {
        self.claimed.clear();
        self.prepared.clear();
        if let Some(preparing) = &mut self.preparing {
            preparing.jobs.clear();
        }
        self.read.clear();
        self.files.clear();
        self.slow.clear();
    }

    fn lock_current(&self, keys: &[(i64, i64)]) -> Result<HashSet<i64>> {
        Ok(stored::lock_current(keys)?.current)
    }

    fn finish(&self, done: &[&Written], blocked: &HashSet<i64>) -> Result<Vec<Job>> {
        finish::finish(done, blocked)
    }

    fn lock(&self, job: &Job) -> Result<bool> {
        stored::lock_by_key(job)
    }

    fn fail(&self, job: &Job, text: &str, sqlstate: &str) -> Result<()> {
        finish::fail(job, text, sqlstate)
    }
}

impl DocumentWork {
    pub fn new(feeds: Vec<Box<dyn Feed>>) -> DocumentWork {
        DocumentWork {
            feeds,
            claimed: VecDeque::new(),
            preparing: None,
            prepared: Vec::new(),
            groups: 0,
            files: FileIntake::default(),
            read: VecDeque::new(),
            slow: SlowIntake::default(),
            statistics: Statistics::default(),
            found_busy: HashMap::new(),
            log: Log::default(),
        }
    }

    /// Takes files whose texts are found, as many as are prepared together.
    fn take_read(&mut self) -> Vec<Document> {
        let (mut group, mut bytes) = (Vec::new(), 0);
        while let Some(next) = self.read.front() {
            bytes += next.size();
            if !group.is_empty() && bytes > GROUP_BYTES {
                break;
            }
            group.extend(self.read.pop_front());
        }
        group
    }

    /// Has documents prepared, each where it is to be prepared next.
    fn prepare(&mut self, group: Vec<Document>, events: &mut Vec<Event>) -> Result<()> {
        let mut documents = Vec::new();
        for document in group {
            if document.is_unread_file() {
                self.files.add(document, events);
            } else if document.asks_models() {
                self.slow.add(document);
            } else {
                documents.push(document);
            }
        }
        let jobs: Vec<Job> = documents.iter().map(|document| document.job.clone()).collect();
        if jobs.is_empty() {
            return Ok(());
        }
        let means = Means::read();
        let results = helper_thread::begin(move || {
            let prepare = |document: Document| {
                let job = document.job.clone();
                let asks_none = || {
                    Error::Internal("a document calls models although its settings do not ask for it".into())
                };
                let prepared = prepare::prepare(document, &means, &mut Consulted::default());
                prepared.and_then(|prepared| prepared.ok_or_else(|| (job, asks_none())))
            };
            documents.into_iter().map(prepare).collect()
        })?;
        self.preparing = Some(Preparing { jobs, results });
        Ok(())
    }

    /// Has the feeds make the documents of the next jobs. After a conflict these jobs are in no list of the
    /// worker any more, so they are given back; otherwise they would wait until their leases end.
    fn refresh(&mut self, count: usize, events: &mut Vec<Event>) -> Result<Vec<Job>> {
        let group: Vec<Job> = self.claimed.drain(..count).collect();
        let jobs = group.clone();
        let refreshed = self.feeds.iter_mut().try_fold(group, |group, feed| feed.refresh(group, events));
        if refreshed.as_ref().is_err_and(Error::is_conflict) {
            let jobs = without_reported(jobs, events);
            events.push(Event::GivenBack { jobs, delay: BUSY });
        }
        refreshed
    }

    /// Reads documents up to a bound of bytes; if one cannot be read, each alone.
    fn read_group(&mut self, events: &mut Vec<Event>) -> Result<Vec<Document>> {
        let count = self.claimed.len().min(GROUP_DOCUMENTS);
        // Rows whose documents do not fit would be read again with the next group.
        let has_rows = self.claimed.iter().take(count).any(|job| job.source_no.is_some());
        let first = if has_rows { GROUP_BYTES } else { FIRST_GROUP_BYTES };
        let bytes = first.saturating_mul(1 << self.groups.min(16)).min(GROUP_BYTES);
        self.groups = self.groups.saturating_add(1);
        let mut group = self.refresh(count, events)?;
        if let Ok(read) = txn::in_txn(|| read_some(&group, bytes)) {
            events.push(Event::Unreleased(read.unreleased));
            for job in group.drain(..).rev().take(read.left) {
                self.claimed.push_front(job);
            }
            return Ok(read.documents);
        }
        let mut documents = Vec::new();
        for job in group {
            match txn::in_txn(|| read_some(std::slice::from_ref(&job), bytes)) {
                Ok(read) => {
                    events.push(Event::Unreleased(read.unreleased));
                    documents.extend(read.documents);
                }
                Err(error) => events.push(Event::failed(job, error)),
            }
        }
        Ok(documents)
    }

    /// Writes a group in one commit; if that fails, each document alone and carefully, so that a bad one
    /// costs no other. Then `locked` says of which knowledge bases somebody has locked the tables.
    fn write_group(
        &mut self,
        prepared: Vec<Prepared>,
        locked: Option<&mut HashMap<i64, Error>>,
        events: &mut Vec<Event>,
    ) -> Result<()> {
        if prepared.is_empty() {
            return Ok(());
        }
        if let [document] = &prepared[..] {
            pidfile::note(Activity::Write, Some(document.job.job_no));
        }
        let result = txn::in_txn(|| prepare::write(&prepared, locked.is_some()));
        pidfile::note(Activity::Write, None);
        match result {
            Ok(written) => {
                for (target, diff) in prepared.iter().flat_map(|document| &document.targets) {
                    let vectors = diff.insert.len();
                    self.statistics.add(vectors, target.vector_db());
                    // Equal texts have their vectors by now; the others come later.
                    events.push(Event::Grown { target: target.clone(), vectors });
                }
                self.statistics.refresh_if_due();
                self.report_written(prepared, &written, events);
                Ok(())
            }
            Err(error) if locked.is_none() && (prepared.len() > 1 || !error.is_transient()) => {
                if !error.is_of_rows() && !error.is_transient() {
                    self.log.write("worker writes documents one by one", &error);
                }
                let mut locked = HashMap::new();
                for document in prepared {
                    // One wait for a lock is enough for all documents of a knowledge base.
                    match locked.get(&document.job.kb_no) {
                        Some(error) => events.push(Event::failed(document.job, Error::clone(error))),
                        None => self.write_group(vec![document], Some(&mut locked), events)?,
                    }
                }
                Ok(())
            }
            Err(error) => {
                if let (Some(locked), true) = (locked, error.is_lock()) {
                    locked.extend(prepared.iter().map(|document| (document.job.kb_no, error.clone())));
                }
                events
                    .extend(prepared.into_iter().map(|document| Event::failed(document.job, error.clone())));
                Ok(())
            }
        }
    }

    /// Reports what was written, by build, to be looked through for missing vectors; what was edited, or is
    /// locked, is given back.
    fn report_written(
        &mut self,
        prepared: Vec<Prepared>,
        written: &prepare::WrittenGroup,
        events: &mut Vec<Event>,
    ) {
        let mut documents = Vec::new();
        let mut groups: BTreeMap<(Priority, i64), Group> = BTreeMap::new();
        let (mut edited, mut busy) = (Vec::new(), BTreeMap::<Duration, Vec<Job>>::new());
        for document in prepared {
            let document_id = document.document_id;
            if !written.locked.current.contains(&document_id) {
                match written.locked.busy.contains(&document_id) {
                    true => busy.entry(self.busy_pause(&document.job)).or_default().push(document.job),
                    false => edited.push(document.job),
                }
                continue;
            }
            self.found_busy.remove(&document.job.job_no);
            let priority = document.job.priority;
            let last = document.targets.last().map(|(target, _)| target);
            documents.push(Written {
                document_id,
                job: document.job,
                settings: document.settings,
                is_new: document.is_new,
                in_next: document.targets.iter().any(|(target, _)| target.is_next()),
                embedder: last.map(|target| target.embedder.id.clone()).unwrap_or_default(),
                is_remote: last.is_some_and(|target| target.is_remote()),
            });
            for (target, Diff { insert: new, .. }) in document.targets {
                let build_no = target.build.build_no;
                let group =
                    groups.entry((priority, build_no)).or_insert_with(|| Group::new(target, priority));
                group.documents.push(document_id);
                group.chunks += new.len();
                group.fresh.add(
                    document_id,
                    written.without_vectors.contains(&(build_no, document_id)).then_some(new),
                );
            }
        }
        let mut groups: Vec<Group> = groups.into_values().collect();
        groups.iter_mut().for_each(|group| group.fresh.sort());
        events.push(Event::Written { documents, groups });
        events.push(Event::GivenBack { jobs: edited, delay: Duration::ZERO });
        events.extend(busy.into_iter().map(|(delay, jobs)| Event::GivenBack { jobs, delay }));
    }

    /// The pause before a document that an open transaction had locked is cut again: doubled each time.
    fn busy_pause(&mut self, job: &Job) -> Duration {
        if self.found_busy.len() > FOUND_BUSY {
            self.found_busy.clear();
        }
        let times = self.found_busy.entry(job.job_no).or_insert(0);
        *times += 1;
        BUSY.saturating_mul(1 << (*times - 1).min(5))
    }
}

/// Documents as they were read, in the order of their jobs.
struct Read {
    documents: Vec<Document>,
    /// Jobs at the end that were not reached.
    left: usize,
    /// Jobs of documents that need not be read, and that could not be released.
    unreleased: Vec<Job>,
}

/// Reads documents in order until they have this many bytes.
fn read_some(jobs: &[Job], bytes: usize) -> Result<Read> {
    let mut read = Read { documents: Vec::new(), left: 0, unreleased: Vec::new() };
    let (mut targets, mut held) = (Targets::default(), 0);
    for (i, job) in jobs.iter().enumerate() {
        let left = jobs.len() - i;
        if held >= bytes {
            return Ok(Read { left, ..read });
        }
        match prepare::read(job, &mut targets)? {
            // A large one is alone in its group: if it kills this worker, it is known which it was.
            Some(document) if !read.documents.is_empty() && held + document.size() > bytes => {
                return Ok(Read { left, ..read });
            }
            Some(document) => {
                held += document.size();
                read.documents.push(document);
            }
            None if queue::delete_if_orphan(job)? => {}
            // Edited since the claim, or deleted with its job (then there is no row to release).
            None => {
                let left = queue::release(std::slice::from_ref(job), Duration::ZERO, None, false)?;
                read.unreleased.extend(left);
            }
        }
    }
    Ok(read)
}
