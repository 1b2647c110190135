//! The kind of work that runs sources: lists, compares, reads, puts and deletes.
//!
//! Items are listed and read on a helper thread (`reader.rs`). What is put or deleted is written in short
//! transactions, each of which holds the source, so that nothing is put for one that was dropped or altered.
//! Several runs take turns.

mod put_items;
mod run_query;

use super::config::{Cleanup, Origin, SourceConfig, SourceType};
use super::create_source::allowed;
use super::reader::{Content, Item, Listing, READ_BYTES, Reader, Wanted};
use super::sql::catalog::Source;
use super::sql::{catalog, items};
use super::web::Means;
use crate::builds::runs;
use crate::builds::runs::SourceCounts;
use crate::extract::Program;
use crate::gateway::client;
use crate::jobs::queue;
use crate::jobs::queue::Job;
use crate::models;
use crate::pg::{txn, wake};
use crate::tables::intake::rests::Rests;
use crate::work::{Event, HelperThread, Pauses, Progress, Work, Written, helper_thread};
use kb_types::error::{Error, Result};
use kb_types::{id, sizes};
pub use put_items::given;
use put_items::{ReadItem, Unreadable};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Sources that are listed or read at the same time.
const AT_ONCE: usize = 4;
/// What is compared, and what is deleted, in one transaction.
const COMPARED: usize = 1000;
/// What is read and put together at most.
const READ: usize = 64;
/// The pause after a lock was in the way, and before documents are looked at again that were locked.
const BUSY: Duration = Duration::from_secs(1);
const LOCKED: Duration = Duration::from_secs(5);

/// What a run does next.
enum Step {
    /// None: the source has not changed since it was listed last.
    Listing(HelperThread<Result<Option<Listing>>>),
    Comparing,
    /// What is read, and how many are compared once all of it is.
    Reading(HelperThread<Result<(Vec<Wanted>, Vec<Content>)>>, usize),
    Putting(Vec<ReadItem>),
    Failing,
    /// Up to this document_id.
    Deleting(i64),
    Ending,
}

struct Run {
    job: Job,
    source: Source,
    config: SourceConfig,
    reader: Arc<dyn Reader>,
    step: Step,
    listed: Vec<Item>,
    /// How many of them are compared.
    compared: usize,
    /// Of what the listing has, and of what was deleted while it was read.
    ids: HashSet<String>,
    unreadable: Vec<Unreadable>,
    /// How many could not be read, in all.
    failed: i64,
    /// What is wrong with the source as a whole.
    problem: Option<String>,
    /// The version of what is listed.
    version: Option<String>,
    is_complete: bool,
    /// A document was locked: the job is done once more.
    was_locked: bool,
    /// Something was stored, so that the next run has less to do.
    has_moved: bool,
    waits_until: Option<Instant>,
}

#[derive(Default)]
pub struct SourceWork {
    claimed: VecDeque<Job>,
    runs: Vec<Run>,
    /// Of those whose queries take long.
    rests: Rests,
    is_resumed: bool,
}

/// Why a step was not done.
enum Stop {
    /// The source was dropped, altered or moved: it is looked at anew.
    Changed,
    Error(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Error(error)
    }
}

impl Work for SourceWork {
    fn kind(&self) -> &'static str {
        "source"
    }

    fn take_up(&mut self) -> Result<()> {
        Ok(())
    }

    fn is_wanted(&self) -> Result<bool> {
        Ok(false)
    }

    fn wants_jobs(&self) -> bool {
        self.claimed.is_empty() && self.runs.len() < AT_ONCE
    }

    fn full_embedders(&self) -> Vec<String> {
        Vec::new()
    }

    fn take(&mut self, jobs: Vec<Job>) {
        self.claimed.extend(jobs);
    }

    /// Begins to list the next source.
    fn begin(&mut self, events: &mut Vec<Event>) -> Result<bool> {
        if self.runs.len() >= AT_ONCE {
            return Ok(false);
        }
        let Some(job) = self.claimed.pop_front() else { return Ok(false) };
        let source = match txn::in_txn(|| job.source_no.map_or(Ok(None), catalog::hold)) {
            Ok(Some(source)) if source.kind == SourceType::Query => {
                if !self.is_resumed {
                    run_query::resume(&mut self.rests)?;
                    self.is_resumed = true;
                }
                let account = run_query::account(&source);
                if let Some(delay) = self.rests.left(source.source_no, &account, Instant::now()) {
                    events.push(Event::GivenBack { jobs: vec![job], delay });
                    return Ok(true);
                }
                Ok(Some(source))
            }
            source => source,
        };
        match source.and_then(|source| begin(&job, source, &mut self.rests)) {
            Ok(Some(run)) => self.runs.push(run),
            // The source was dropped, with its job.
            Ok(None) => drop(txn::in_txn(|| queue::finish(std::slice::from_ref(&job)))?),
            Err(error) if error.is_lock() => events.push(Event::GivenBack { jobs: vec![job], delay: BUSY }),
            Err(error) => events.push(Event::failed(job, error)),
        }
        Ok(true)
    }

    fn collect(&mut self) -> Result<Progress> {
        Ok(Progress::Nothing)
    }

    /// Does a step of each run that can go on.
    fn settle(&mut self, events: &mut Vec<Event>) -> Result<bool> {
        let (mut moved, mut runs) = (false, Vec::with_capacity(self.runs.len()));
        for mut run in std::mem::take(&mut self.runs) {
            if run.waits_until.is_some_and(|until| Instant::now() < until) {
                runs.push(run);
                continue;
            }
            run.waits_until = None;
            match run.go_on() {
                Ok(Went::Nowhere) => runs.push(run),
                Ok(Went::On) => {
                    moved = true;
                    runs.push(run);
                }
                Ok(Went::ToTheEnd) => moved = true,
                Ok(Went::Again) => events.push(Event::GivenBack { jobs: vec![run.job], delay: LOCKED }),
                Err(Stop::Changed) => {
                    events.push(Event::GivenBack { jobs: vec![run.job], delay: Duration::ZERO });
                }
                Err(Stop::Error(error)) if error.is_conflict() => {
                    run.waits_until = Some(Instant::now() + BUSY);
                    runs.push(run);
                }
                Err(Stop::Error(error)) => events.push(Event::failed(run.job, error)),
            }
        }
        self.runs = runs;
        Ok(moved)
    }

    fn ask_models(&mut self, _may_begin: bool, _pauses: &Pauses, _events: &mut Vec<Event>) -> Result<bool> {
        Ok(false)
    }

    fn write(&mut self, _events: &mut Vec<Event>) -> Result<()> {
        Ok(())
    }

    fn jobs(&self) -> Vec<Job> {
        self.claimed.iter().chain(self.runs.iter().map(|run| &run.job)).cloned().collect()
    }

    fn coming(&self) -> HashSet<i64> {
        HashSet::new()
    }

    fn is_idle(&self) -> bool {
        self.claimed.is_empty() && self.runs.is_empty()
    }

    /// A worker that has to leave first stores something of each run, so that runs come to an end however
    /// often that happens.
    fn is_preparing(&self) -> bool {
        self.runs.iter().any(|run| !run.has_moved)
    }

    fn is_prepared(&mut self) -> bool {
        self.runs.iter_mut().any(|run| match &mut run.step {
            Step::Listing(listing) => listing.is_done(),
            Step::Reading(read, _) => read.is_done(),
            _ => run.waits_until.is_none(),
        })
    }

    fn clear(&mut self) {
        self.claimed.clear();
        // Threads that list or read end by themselves, and nobody takes what they found.
        self.runs.clear();
    }

    fn lock_current(&self, _keys: &[(i64, i64)]) -> Result<HashSet<i64>> {
        Ok(HashSet::new())
    }

    fn finish(&self, _done: &[&Written], _blocked: &HashSet<i64>) -> Result<Vec<Job>> {
        Ok(Vec::new())
    }

    fn lock(&self, job: &Job) -> Result<bool> {
        match job.source_no.map_or(Ok(None), catalog::hold) {
            Ok(_) => Ok(true),
            Err(error) if error.is_lock() => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn fail(&self, job: &Job, text: &str, _sqlstate: &str) -> Result<()> {
        let Some(source) = job.source_no.map_or(Ok(None), catalog::hold)? else { return Ok(()) };
        catalog::set_listed(&source, job.run_no, false, Some(text))?;
        job.run_no.map_or(Ok(()), |run_no| runs::warn(run_no, &format!("{}: {text}", source.name)))
    }
}

/// Only the main thread can start it.
fn start_gateway(reader: &dyn Reader) {
    if reader.needs_gateway() {
        wake::start_gateway();
    }
}

/// How far a run came.
enum Went {
    Nowhere,
    On,
    ToTheEnd,
    /// The job is to be done once more.
    Again,
}

fn begin(job: &Job, source: Option<Source>, rests: &mut Rests) -> Result<Option<Run>> {
    let Some(source) = source else { return Ok(None) };
    let allowed = allowed();
    let invalid = |problems: Vec<String>| Error::State {
        problem: problems.join("; "),
        hint: "Change the source (kb.alter_source), or the setting in the server's configuration file."
            .into(),
    };
    let config = SourceConfig::parse(source.kind, &source.config, &allowed).map_err(invalid)?;
    let means = Means {
        client: client::this_client(&source.tenant_id, source.kb_no),
        program: Program::from_settings(),
        max_size: allowed.max_size,
    };
    let reader: Result<Arc<dyn Reader>, String> = match &config.origin {
        Origin::Query(query) => {
            let is_full = config.cleanup == Cleanup::Full;
            Ok(Arc::new(run_query::run_query(&source, query, is_full, rests)?))
        }
        Origin::Bucket(bucket) => {
            let (secret, url) = (bucket.secret.as_deref(), bucket.bucket.url());
            let access = txn::in_txn(|| models::source_access(&source.name, secret, &url))?;
            bucket.reader(access, means.client, &allowed).map(|reader| Arc::new(reader) as Arc<dyn Reader>)
        }
        _ => config.reader(&allowed, means),
    };
    let reader = reader.map_err(|problem| invalid(vec![problem]))?;
    start_gateway(&*reader);
    let version = source.version.clone().filter(|_| config.cleanup != Cleanup::Full);
    let of = Arc::clone(&reader);
    let listing = helper_thread::begin(move || match version.is_some_and(|version| of.is_at(&version)) {
        true => Ok(None),
        false => of.list().map(Some),
    })?;
    Ok(Some(Run {
        job: job.clone(),
        source,
        config,
        reader,
        step: Step::Listing(listing),
        listed: Vec::new(),
        compared: 0,
        ids: HashSet::new(),
        unreadable: Vec::new(),
        failed: 0,
        problem: None,
        version: None,
        is_complete: false,
        was_locked: false,
        has_moved: false,
        waits_until: None,
    }))
}

impl Run {
    fn go_on(&mut self) -> Result<Went, Stop> {
        match &mut self.step {
            Step::Listing(listing) => {
                let Some(listing) = listing.take() else { return Ok(Went::Nowhere) };
                match listing?? {
                    Some(listing) => {
                        self.take_listing(listing);
                        self.step = Step::Comparing;
                    }
                    None => {
                        self.is_complete = true;
                        self.step = Step::Ending;
                    }
                }
            }
            Step::Comparing if self.source.version.is_some() => {
                self.in_txn(|run| catalog::set_version(run.source.source_no, None))?;
                self.source.version = None;
            }
            Step::Comparing => self.compare()?,
            Step::Reading(read, end) => {
                let Some(read) = read.take() else { return Ok(Went::Nowhere) };
                let ((wanted, contents), end) = (read??, *end);
                self.take_read(wanted, contents, end);
            }
            Step::Putting(_) => {
                self.put()?;
                self.step = Step::Comparing;
            }
            Step::Failing => self.fail_some()?,
            Step::Deleting(after) => {
                let after = *after;
                self.delete_some(after)?;
            }
            Step::Ending => {
                self.end()?;
                return Ok(if self.was_locked { Went::Again } else { Went::ToTheEnd });
            }
        }
        Ok(Went::On)
    }

    /// The external_id of an item. Its name begins with the source's, so that no two sources, and no two
    /// directories, have the same.
    fn id_of(&self, path: &str) -> String {
        format!("{}/{path}", self.source.name)
    }

    fn take_listing(&mut self, listing: Listing) {
        let Listing { items, failed, problem, version } = listing;
        self.version = version;
        self.is_complete = problem.is_none();
        self.problem = match problem {
            Some(problem) => Some(format!("{problem}; no document was deleted")),
            None if items.is_empty() && failed.is_empty() => Some(self.reader.nothing()),
            None => None,
        };
        for (path, problem) in failed {
            self.note_unreadable(self.id_of(&path), |external_id| Error::Document { external_id, problem });
        }
        for item in items {
            let external_id = self.id_of(&item.path);
            match id::problem(&external_id, id::MAX_EXTERNAL_BYTES) {
                None => {
                    self.ids.insert(external_id);
                    self.listed.push(item);
                }
                Some(problem) => {
                    let problem = format!("its path is too long: {problem}");
                    self.note_unreadable(external_id, |external_id| Error::Document { external_id, problem });
                }
            }
        }
    }

    /// Notes what is listed as failed. A path that is too long is cut, and told from others by a hash.
    fn note_unreadable(&mut self, external_id: String, error: impl FnOnce(String) -> Error) {
        let hash = || blake3::hash(external_id.as_bytes()).to_hex()[..16].to_string();
        let external_id = match external_id.len() > id::MAX_EXTERNAL_BYTES {
            true => format!("{}… {}", sizes::cut(&external_id, id::MAX_EXTERNAL_BYTES - 32), hash()),
            false => external_id,
        };
        self.failed += 1;
        // A name of which two are the same is listed once.
        if self.ids.insert(external_id.clone()) {
            let error = error(external_id.clone());
            self.unreadable.push(Unreadable { external_id, error });
        }
    }

    /// Runs `work` in a transaction, in which the source stays as it is.
    fn in_txn<T>(&mut self, work: impl FnOnce(&mut Run) -> Result<T>) -> Result<T, Stop> {
        let done = txn::in_txn(|| match catalog::hold(self.source.source_no)? {
            Some(source) if source == self.source => work(self).map(Some),
            _ => Ok(None),
        })?;
        done.ok_or(Stop::Changed)
    }

    fn count(&self, counts: SourceCounts) -> Result<()> {
        match self.job.run_no {
            Some(run_no) if counts != SourceCounts::default() => runs::count_source(run_no, counts),
            _ => Ok(()),
        }
    }

    /// Compares the next files with the documents, and begins to read those that are new or changed.
    fn compare(&mut self) -> Result<(), Stop> {
        if self.compared >= self.listed.len() {
            self.step = Step::Failing;
            return Ok(());
        }
        let end = self.listed.len().min(self.compared + COMPARED);
        let ids: Vec<String> =
            self.listed[self.compared..end].iter().map(|item| self.id_of(&item.path)).collect();
        let known = self.in_txn(|run| items::known(&run.source, &ids))?;
        let known: HashMap<String, Option<String>> =
            known.into_iter().map(|known| (known.external_id, known.version)).collect();
        let is_full = self.config.cleanup == Cleanup::Full;
        let mut wanted: Vec<Wanted> = Vec::new();
        let (mut bytes, mut compared) = (0, self.compared);
        for (item, id) in self.listed[self.compared..end].iter().zip(ids) {
            let known = known.get(&id).cloned().flatten().filter(|_| !is_full);
            if known.is_none() || known != item.version {
                if !wanted.is_empty() && (wanted.len() == READ || bytes + item.size > READ_BYTES) {
                    break;
                }
                bytes += item.size;
                wanted.push(Wanted { path: item.path.clone(), known, size: item.size });
            }
            compared += 1;
        }
        if wanted.is_empty() {
            self.compared = compared;
            return Ok(());
        }
        let reader = Arc::clone(&self.reader);
        start_gateway(&*reader);
        let read = helper_thread::begin(move || {
            let contents = reader.read(&wanted)?;
            Ok((wanted, contents))
        })?;
        self.step = Step::Reading(read, compared);
        Ok(())
    }

    /// Takes what was read. If that is not all, the rest is compared, and read, once more.
    fn take_read(&mut self, wanted: Vec<Wanted>, contents: Vec<Content>, end: usize) {
        self.compared = match wanted.get(contents.len()) {
            Some(next) => {
                let rest = self.listed[self.compared..].iter();
                self.compared + rest.take_while(|item| item.path != next.path).count()
            }
            None => end,
        };
        let items = wanted.into_iter().zip(contents).map(|(wanted, content)| ReadItem {
            external_id: self.id_of(&wanted.path),
            path: wanted.path,
            content,
        });
        self.step = Step::Putting(items.collect());
    }

    fn put(&mut self) -> Result<(), Stop> {
        let Step::Putting(read) = std::mem::replace(&mut self.step, Step::Comparing) else { return Ok(()) };
        let put = self.in_txn(|run| {
            let put = put_items::put(run, &read)?;
            run.count(put.counts)?;
            Ok(put)
        });
        let put = match put {
            Ok(put) => put,
            Err(stop) => {
                self.step = Step::Putting(read);
                return Err(stop);
            }
        };
        self.has_moved |= put.has_moved;
        self.was_locked |= put.was_locked;
        self.failed += put.failed;
        if let Some(problem) = put.problem {
            self.problem.get_or_insert(problem);
        }
        for external_id in put.gone {
            self.ids.remove(&external_id);
        }
        Ok(())
    }

    /// Lists the next of what was found unreadable when the source was listed.
    fn fail_some(&mut self) -> Result<(), Stop> {
        if self.unreadable.is_empty() {
            let deletes = self.is_complete && self.config.cleanup != Cleanup::None;
            self.step = if deletes { Step::Deleting(0) } else { Step::Ending };
            return Ok(());
        }
        let some: Vec<Unreadable> = self.unreadable.iter().take(COMPARED).cloned().collect();
        let put = self.in_txn(|run| {
            let put = put_items::fail(run, &some)?;
            run.count(put.counts)?;
            Ok(put)
        })?;
        self.unreadable.drain(..some.len());
        self.was_locked |= put.was_locked;
        if let Some(problem) = put.problem {
            self.problem.get_or_insert(problem);
        }
        Ok(())
    }

    /// Deletes those of the next documents that the listing does not have.
    fn delete_some(&mut self, after: i64) -> Result<(), Stop> {
        let (last, was_locked) = self.in_txn(|run| {
            let documents = items::after(run.source.source_no, after, COMPARED)?;
            let last = documents.last().map(|document| document.document_id);
            let gone = documents.iter().filter(|document| !run.ids.contains(&document.external_id));
            let gone: Vec<i64> = gone.map(|document| document.document_id).collect();
            if gone.is_empty() {
                return Ok((last, false));
            }
            let deleted = items::delete(&gone)?;
            queue::delete(run.source.kb_no, &run.source.tenant_id, &deleted)?;
            let number = deleted.len() as i64;
            run.count(SourceCounts { deleted: number, skipped: -number, ..SourceCounts::default() })?;
            Ok((last, deleted.len() < gone.len()))
        })?;
        self.was_locked |= was_locked;
        self.step = last.map_or(Step::Ending, Step::Deleting);
        Ok(())
    }

    /// Ends the job, unless the source was enqueued again meanwhile.
    fn end(&mut self) -> Result<(), Stop> {
        if self.was_locked {
            return Ok(());
        }
        self.in_txn(|run| {
            if queue::finish(std::slice::from_ref(&run.job))?.is_empty() {
                return Ok(());
            }
            let problem = run.problem.as_deref();
            if run.source.version.is_none() && run.is_complete && run.failed == 0 {
                catalog::set_version(run.source.source_no, run.version.as_deref())?;
            }
            catalog::set_listed(&run.source, run.job.run_no, run.is_complete, problem)?;
            run.count(SourceCounts { failed: run.failed, skipped: -run.failed, ..SourceCounts::default() })?;
            match (run.job.run_no, problem) {
                (Some(run_no), Some(problem)) => {
                    runs::warn(run_no, &format!("{}: {problem}", run.source.name))
                }
                _ => Ok(()),
            }
        })
    }
}
