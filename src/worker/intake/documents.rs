//! From the queue to chunks: claims jobs, reads and prepares documents in groups, writes their chunks.
//!
//! One group is prepared at a time, on a helper thread. Meanwhile the main thread writes the group before,
//! and what comes back from the gateway. The first group after a pause is small, so that embedding begins
//! soon.
//!
//! Each embedder has a limited number of documents under way ([`OPEN_LOCAL`], [`OPEN_REMOTE`]); when it has
//! as many, claims pass over its knowledge bases. So a provider that never answers fills only its own share.
//! A document that an open transaction has locked is given back, for longer each time.

use super::claims::{Busy, Claims};
use super::prepare::{self, Document, Prepared, Written};
use super::rests::Rests;
use super::row_intake;
use super::slow_intake::SlowIntake;
use super::source_changes::SourceChanges;
use super::source_faults::SourceFaults;
use super::target::Targets;
use crate::jobs::queue;
use crate::jobs::queue::Job;
use crate::models::embedders;
use crate::pg::pidfile::{self, Activity};
use crate::pg::txn;
use crate::settings;
use crate::worker::embed::pauses::Pauses;
use crate::worker::embed::send_queue::{Group, SendQueue};
use crate::worker::finish::open_documents::OpenDocuments;
use crate::worker::finish::outcome::BUSY;
use crate::worker::helper_thread;
use crate::worker::helper_thread::HelperThread;
use crate::worker::upkeep::indexes::Indexes;
use crate::worker::upkeep::statistics::Statistics;
use kb_text::answers::Consulted;
use kb_text::diff::Diff;
use kb_types::error::{Error, Result};
use kb_types::states::Priority;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

/// Documents under way at most: in all, of one local and of one remote embedder, so that a slow provider delays only
/// its own; and of one knowledge base per claim.
const OPEN_DOCUMENTS: usize = 4096;
const OPEN_LOCAL: usize = 64;
const OPEN_REMOTE: usize = 1536;
const SHARE: usize = 32;
/// Documents claimed at a time.
const CLAIM: usize = 64;
/// A group of documents is prepared together up to this many bytes: few in the first group after a pause, so that vectors are
/// computed while the next is prepared, and twice as many each time.
const GROUP_BYTES: usize = 2 * 1024 * 1024;
const FIRST_GROUP_BYTES: usize = 16 * 1024;
const GROUP_DOCUMENTS: usize = 32;
/// How many documents are remembered that an open transaction had locked.
const FOUND_BUSY: usize = 100_000;

/// A group of documents that is being prepared.
struct Preparing {
    /// Empty when the group was given up: its end is waited for.
    jobs: Vec<Job>,
    results: HelperThread<Vec<Result<Prepared, (Job, Error)>>>,
}

#[derive(Default)]
pub struct Intake {
    sources: SourceChanges,
    rests: Rests,
    faults: SourceFaults,
    claims: Claims,
    claimed: VecDeque<Job>,
    preparing: Option<Preparing>,
    /// Groups that were prepared since nothing was claimed last.
    groups: u32,
    slow: SlowIntake,
    statistics: Statistics,
    /// By job_no, how often an open transaction had locked the document.
    found_busy: HashMap<i64, u32>,
}

impl Intake {
    pub fn is_idle(&self) -> bool {
        self.claimed.is_empty() && self.preparing.is_none() && self.slow.is_empty()
    }

    pub fn is_preparing(&self) -> bool {
        self.preparing.is_some() || !self.slow.is_empty()
    }

    /// Whether a group is prepared and can be written.
    pub fn is_prepared(&mut self) -> bool {
        self.preparing.as_mut().is_some_and(|preparing| preparing.results.is_done())
            || self.slow.is_prepared()
    }

    /// The jobs whose chunks are not written yet.
    pub fn jobs(&self) -> impl Iterator<Item = Job> {
        let preparing = self.preparing.iter().flat_map(|preparing| &preparing.jobs);
        self.claimed.iter().chain(preparing).chain(self.slow.jobs()).cloned()
    }

    /// The knowledge bases whose documents are being prepared, but for those that wait for models.
    pub fn coming(&self) -> HashSet<i64> {
        let preparing = self.preparing.iter().flat_map(|preparing| &preparing.jobs);
        self.claimed.iter().chain(preparing).map(|job| job.kb_no).collect()
    }

    /// Gives up all jobs; a group that is being prepared cannot be stopped.
    pub fn clear(&mut self) {
        self.claimed.clear();
        if let Some(preparing) = &mut self.preparing {
            preparing.jobs.clear();
        }
        self.slow.clear();
    }

    /// Claims jobs, and reads, prepares and writes documents in groups: one is prepared while another is written.
    /// Nothing is claimed unless it `may_begin`. Whether anything moved.
    pub fn advance(
        &mut self,
        may_begin: bool,
        open: &mut OpenDocuments,
        queue: &mut SendQueue,
        pauses: &mut Pauses,
        indexes: &mut Indexes,
    ) -> Result<bool> {
        let (prepared, slow_moved) = self.slow.advance(may_begin, open, pauses)?;
        self.write_group(prepared, None, open, queue, indexes)?;
        let moved = self.advance_others(may_begin, open, queue, pauses, indexes)?;
        Ok(moved || slow_moved)
    }

    /// The same for documents that are cut without asking models.
    fn advance_others(
        &mut self,
        may_begin: bool,
        open: &mut OpenDocuments,
        queue: &mut SendQueue,
        pauses: &mut Pauses,
        indexes: &mut Indexes,
    ) -> Result<bool> {
        let mut results = None;
        if let Some(preparing) = &mut self.preparing {
            match preparing.results.take() {
                None => return Ok(false),
                Some(prepared) => {
                    let is_given_up = preparing.jobs.is_empty();
                    self.preparing = None;
                    results = (!is_given_up).then_some(prepared).transpose()?;
                }
            }
        }
        let begun = if may_begin { self.prepare_next(open, pauses, indexes) } else { Ok(false) };
        // Even if no more can be prepared, what is done is written.
        let Some(results) = results else { return begun };
        let mut prepared = Vec::new();
        for result in results {
            match result {
                Ok(document) => prepared.push(document),
                Err((job, error)) => open.outcomes().fail(&job, &error)?,
            }
        }
        self.write_group(prepared, None, open, queue, indexes)?;
        begun.map(|_| true)
    }

    /// Claims jobs if none is left, reads a group of documents and has it prepared; false when there is none.
    fn prepare_next(
        &mut self,
        open: &mut OpenDocuments,
        pauses: &mut Pauses,
        indexes: &mut Indexes,
    ) -> Result<bool> {
        if self.claimed.is_empty() {
            self.claim(open, pauses, indexes)?;
        }
        if self.claimed.is_empty() {
            self.groups = 0;
            return Ok(false);
        }
        let (slow, documents): (Vec<_>, Vec<_>) =
            self.read_group(open)?.into_iter().partition(Document::asks_models);
        slow.into_iter().for_each(|document| self.slow.add(document));
        let jobs: Vec<Job> = documents.iter().map(|document| document.job.clone()).collect();
        if jobs.is_empty() {
            return Ok(true);
        }
        let model_dir = settings::model_dir();
        let limits = settings::limits(|| {});
        let results = helper_thread::begin(move || {
            let prepare = |document: Document| {
                let job = document.job.clone();
                let asks_none = || Error::Internal("a document was not to ask models".into());
                let prepared = prepare::prepare(document, &model_dir, limits, &mut Consulted::default());
                prepared.and_then(|prepared| prepared.ok_or_else(|| (job, asks_none())))
            };
            documents.into_iter().map(prepare).collect()
        })?;
        self.preparing = Some(Preparing { jobs, results });
        Ok(true)
    }

    fn claim(&mut self, open: &OpenDocuments, pauses: &mut Pauses, indexes: &mut Indexes) -> Result<()> {
        let room = OPEN_DOCUMENTS.saturating_sub(open.len());
        if room == 0 {
            return Ok(());
        }
        self.sources.take_up(&mut self.rests)?;
        end_pauses_of_altered(pauses)?;
        // No embedder takes more than half of what is left, so that however many are stuck another finds room.
        let mut embedders = open.busy_embedders(OPEN_LOCAL, OPEN_REMOTE.min(room / 2));
        embedders.extend(self.slow.full_embedders());
        let busy = Busy { embedders, knowledge_bases: indexes.full() };
        let paused = pauses.current(Instant::now());
        let lease = settings::lease_duration();
        let (most, share) = (CLAIM.min(room), SHARE.min(room));
        self.claimed.extend(self.claims.claim(most, share, lease, busy, paused)?);
        Ok(())
    }

    /// Reads documents up to a bound of bytes; if one cannot be read, each alone.
    fn read_group(&mut self, open: &mut OpenDocuments) -> Result<Vec<Document>> {
        let count = self.claimed.len().min(GROUP_DOCUMENTS);
        // Rows whose documents do not fit would be read again with the next group.
        let has_rows = self.claimed.iter().take(count).any(|job| job.source_no.is_some());
        let first = if has_rows { GROUP_BYTES } else { FIRST_GROUP_BYTES };
        let bytes = first.saturating_mul(1 << self.groups.min(16)).min(GROUP_BYTES);
        self.groups = self.groups.saturating_add(1);
        let claimed = self.claimed.drain(..count).collect();
        let mut group = row_intake::refresh(claimed, &mut self.rests, &mut self.faults, open)?;
        if let Ok(read) = txn::in_txn(|| read_some(&group, bytes)) {
            open.outcomes().release_later(read.unreleased);
            for job in group.drain(..).rev().take(read.left) {
                self.claimed.push_front(job);
            }
            return Ok(read.documents);
        }
        let mut documents = Vec::new();
        for job in group {
            match txn::in_txn(|| read_some(std::slice::from_ref(&job), bytes)) {
                Ok(read) => {
                    open.outcomes().release_later(read.unreleased);
                    documents.extend(read.documents);
                }
                Err(error) => open.outcomes().fail(&job, &error)?,
            }
        }
        Ok(documents)
    }

    /// Writes a group in one commit; if that fails, each document alone and carefully, so that a bad one costs no other. Then `locked`
    /// says of which knowledge bases somebody has locked the tables.
    fn write_group(
        &mut self,
        prepared: Vec<Prepared>,
        locked: Option<&mut HashMap<i64, Error>>,
        open: &mut OpenDocuments,
        queue: &mut SendQueue,
        indexes: &mut Indexes,
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
                    self.statistics.add(diff.insert.len(), target.vector_db());
                    // Equal texts have their vectors by now; the others come later.
                    indexes.note_vectors(target, diff.insert.len());
                }
                self.statistics.refresh_if_due();
                self.open_written(prepared, &written, open, queue)
            }
            Err(error) if locked.is_none() && (prepared.len() > 1 || !error.is_transient()) => {
                if !error.is_of_rows() && !error.is_transient() {
                    open.outcomes().log("worker writes documents one by one", &error);
                }
                let mut locked = HashMap::new();
                for document in prepared {
                    // One wait for a lock is enough for all documents of a knowledge base.
                    match locked.get(&document.job.kb_no) {
                        Some(error) => open.outcomes().fail(&document.job, error)?,
                        None => self.write_group(vec![document], Some(&mut locked), open, queue, indexes)?,
                    }
                }
                Ok(())
            }
            Err(error) => {
                for document in &prepared {
                    open.outcomes().fail(&document.job, &error)?;
                }
                if let (Some(locked), true) = (locked, error.is_lock()) {
                    locked.extend(prepared.iter().map(|document| (document.job.kb_no, error.clone())));
                }
                Ok(())
            }
        }
    }

    /// Queues what was written, by build, to be looked through for missing vectors; live edits first.
    fn open_written(
        &mut self,
        prepared: Vec<Prepared>,
        written: &Written,
        open: &mut OpenDocuments,
        queue: &mut SendQueue,
    ) -> Result<()> {
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
            for (target, Diff { insert: new, .. }) in open.open(document) {
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
        for mut group in groups.into_values() {
            group.fresh.sort();
            group.holds = open.hold(group.documents.iter().copied());
            queue.add(group);
        }
        open.outcomes().give_back(&edited, Duration::ZERO)?;
        busy.iter().try_for_each(|(pause, jobs)| open.outcomes().give_back(jobs, *pause))
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

/// Ends the pauses of embedders that were altered, and those of their documents: some may have begun after the change,
/// by an answer to a batch sent before it.
fn end_pauses_of_altered(pauses: &mut Pauses) -> Result<()> {
    for id in pauses.due_for_comparison(Instant::now()) {
        let embedder = txn::in_txn(|| embedders::find(&id))?;
        if pauses.is_altered(&id, embedder.as_ref()) {
            txn::in_txn(|| queue::make_due_for_embedder(&id))?;
            pauses.end(&id);
        }
    }
    Ok(())
}

/// Documents as they were read, in the order of their jobs.
struct Read {
    documents: Vec<Document>,
    /// Jobs at the end that were not reached.
    left: usize,
    /// Jobs of documents that need not be read, and that could not be released.
    unreleased: Vec<Job>,
}

/// Reads documents in order until they hold so many bytes.
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
