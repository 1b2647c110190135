//! Documents whose cutting asks models, or whose text extraction services find, are prepared apart, those of
//! each model and service on a thread of their own, so that one that is slow to answer keeps no others back.
//!
//! What models and services said is kept in `kb.documents.answers` by a hash of what was asked, also of a
//! document that failed or was stopped, so that nothing is paid for twice.

use super::consult::{self, CaseEnd, Consultation, Right, Rights, Task};
use super::prepare::{Document, Means, Prepared};
use crate::documents::stored;
use crate::jobs::queue::Job;
use crate::models::usage;
use crate::pg::{report, txn, wake};
use crate::work::{Event, HelperThread, Pauses, Target, helper_thread};
use kb_gateway::protocol::Usage;
use kb_types::ServiceKind;
use kb_types::error::Result;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Maximum number of threads.
const THREADS: usize = 8;
/// A group of documents is prepared together up to this many bytes.
const GROUP_BYTES: usize = 2 * 1024 * 1024;
const GROUP_DOCUMENTS: usize = 32;
/// The number of documents (or `GROUP_BYTES` of them) waiting for a model or service from which on no more
/// documents of the same embedder, or of the same knowledge bases, are claimed.
const WAITING: usize = 64;

/// How long nothing more is asked of a service that is paused, so that its documents are not read again and
/// again.
const REST: Duration = Duration::from_secs(5);

/// What is asked about a document, by ids.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Models {
    /// The embedder and the chat model with which it is cut in each build. A document may have a chat model
    /// of its own.
    cut_with: Vec<(String, Option<String>)>,
    extractor: Option<String>,
}

impl Models {
    fn of(document: &Document) -> Models {
        let asked = document.targets.iter().filter(|(target, _)| target.asks_models());
        let cut_with = asked
            .map(|(target, _)| (target.embedder.id.clone(), target.llm.as_ref().map(|llm| llm.id.clone())));
        Models { cut_with: cut_with.collect(), extractor: document.asked_extractor().map(str::to_string) }
    }
}

/// Whether so much waits that no more is claimed.
fn is_full(documents: &VecDeque<Document>) -> bool {
    let bytes = documents.iter().map(Document::size).sum::<usize>();
    documents.len() >= WAITING || bytes >= GROUP_BYTES
}

struct UnderConsultation {
    /// Empty when the group was given up: its end is waited for.
    jobs: Vec<Job>,
    stop: Arc<AtomicBool>,
    ended: HelperThread<Consultation>,
}

#[derive(Default)]
pub struct SlowIntake {
    waiting: BTreeMap<Models, VecDeque<Document>>,
    running: BTreeMap<Models, UnderConsultation>,
    /// When services that were paused are asked again.
    rests: BTreeMap<Models, Instant>,
}

impl SlowIntake {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// Whether a group has ended.
    pub fn is_prepared(&mut self) -> bool {
        self.running.values_mut().any(|running| running.ended.is_done())
    }

    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        let waiting = self.waiting.values().flatten().map(|document| &document.job);
        waiting.chain(self.running.values().flat_map(|running| &running.jobs))
    }

    /// Gives up all jobs; nothing more is asked for them.
    pub fn clear(&mut self) {
        self.waiting.clear();
        for running in self.running.values_mut() {
            running.stop.store(true, Ordering::Relaxed);
            running.jobs.clear();
        }
    }

    /// Embedders of which enough documents wait.
    pub fn full_embedders(&self) -> Vec<String> {
        let full = self.waiting.iter().filter(|(_, documents)| is_full(documents));
        full.filter_map(|(models, _)| models.cut_with.last()).map(|(embedder, _)| embedder.clone()).collect()
    }

    /// Knowledge bases of which enough documents wait for an extraction service. Others of the same embedder
    /// need not wait for it.
    pub fn full_knowledge_bases(&self) -> Vec<i64> {
        let full = self
            .waiting
            .iter()
            .filter(|(models, documents)| models.cut_with.is_empty() && is_full(documents));
        let bases: BTreeSet<i64> =
            full.flat_map(|(_, documents)| documents).map(|document| document.job.kb_no).collect();
        bases.into_iter().collect()
    }

    pub fn add(&mut self, document: Document) {
        self.waiting.entry(Models::of(&document)).or_default().push_back(document);
    }

    /// Returns what is prepared; whether anything has ended.
    pub fn settle(&mut self, events: &mut Vec<Event>) -> Result<(Vec<Prepared>, bool)> {
        let (mut prepared, mut moved) = (Vec::new(), false);
        let done: Vec<Models> = self
            .running
            .iter_mut()
            .filter_map(|(models, running)| running.ended.is_done().then(|| models.clone()))
            .collect();
        for models in done {
            moved = true;
            let Some(mut running) = self.running.remove(&models) else { continue };
            let Some(ended) = running.ended.take() else { continue };
            if !running.jobs.is_empty() {
                let ended = ended?;
                if ended.outcomes.iter().any(|(end, _)| end.is_paused_extractor()) {
                    self.rests.insert(models, Instant::now() + REST);
                }
                settle(ended, &mut prepared, events);
            } else if let Ok(ended) = ended {
                book(&ended.spent);
            }
        }
        Ok((prepared, moved))
    }

    /// Begins what can begin; whether anything has begun. Unless it `may_begin`, what is under way ends as
    /// soon as it can.
    pub fn ask(&mut self, may_begin: bool, pauses: &Pauses, events: &mut Vec<Event>) -> Result<bool> {
        if !may_begin {
            self.running.values().for_each(|running| running.stop.store(true, Ordering::Relaxed));
            let jobs: Vec<Job> =
                std::mem::take(&mut self.waiting).into_values().flatten().map(|d| d.job).collect();
            events.push(Event::GivenBack { jobs, delay: Duration::ZERO });
            return Ok(false);
        }
        let mut has_begun = false;
        self.rests.retain(|_, until| *until > Instant::now());
        let is_free =
            |models: &&Models| !self.running.contains_key(*models) && !self.rests.contains_key(*models);
        let free: Vec<Models> = self.waiting.keys().filter(is_free).cloned().collect();
        for models in free.into_iter().take(THREADS.saturating_sub(self.running.len())) {
            has_begun = true;
            self.begin(models, pauses, events)?;
        }
        Ok(has_begun)
    }

    /// Begins with as many of the documents that wait for these models as go together.
    fn begin(&mut self, models: Models, pauses: &Pauses, events: &mut Vec<Event>) -> Result<()> {
        let (documents, is_empty) = match self.waiting.get_mut(&models) {
            Some(waiting) => (take_group(waiting), waiting.is_empty()),
            None => return Ok(()),
        };
        if is_empty {
            self.waiting.remove(&models);
        }
        let (mut rights, mut refusals) = (Rights::new(), HashMap::new());
        for (target, _) in documents.iter().flat_map(|document| &document.targets) {
            let build_no = target.build.build_no;
            let asks_none = !target.asks_models() && target.extractors.is_empty();
            if asks_none || rights.contains_key(&build_no) || refusals.contains_key(&build_no) {
                continue;
            }
            match read_right(target, pauses) {
                Ok(right) => drop(rights.insert(build_no, right)),
                Err(error) => {
                    events.push(Event::Refused { target: Arc::clone(target), error: error.clone() });
                    refusals.insert(build_no, error);
                }
            }
        }
        let jobs = documents.iter().map(|document| document.job.clone()).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let task = Task { documents, rights, refusals, means: Means::read(), stop: Arc::clone(&stop) };
        wake::start_gateway();
        let ended = helper_thread::begin(move || consult::consult(task))?;
        self.running.insert(models, UnderConsultation { jobs, stop, ended });
        Ok(())
    }
}

fn take_group(waiting: &mut VecDeque<Document>) -> Vec<Document> {
    let (mut group, mut bytes) = (Vec::new(), 0);
    while let Some(next) = waiting.front() {
        bytes += next.size();
        if group.len() == GROUP_DOCUMENTS || (!group.is_empty() && bytes > GROUP_BYTES) {
            break;
        }
        group.extend(waiting.pop_front());
    }
    group
}

/// The right to ask the models of a build, or why they may not be asked now.
fn read_right(target: &Arc<Target>, pauses: &Pauses) -> Result<Right> {
    if target.asks_models() {
        pauses.check(&target.embedder, &target.build.tenant_id, Instant::now())?;
    }
    txn::in_txn(|| Right::read(target))
}

/// Books what was spent, keeps what was answered, and ends or hands on the documents.
fn settle(ended: Consultation, prepared: &mut Vec<Prepared>, events: &mut Vec<Event>) {
    book(&ended.spent);
    events.extend(ended.refused.into_iter().map(|(target, error)| Event::Refused { target, error }));
    let mut stopped = Vec::new();
    for (outcome, kept) in ended.outcomes {
        if let Some((document_id, answers)) = kept
            && let Err(error) = txn::in_txn(|| keep(document_id, &answers))
        {
            report::log(&format!("worker cannot save the answers of models about a document: {error}"));
        }
        match outcome {
            CaseEnd::Prepared(document) => prepared.push(document),
            CaseEnd::Failed(job, error) => events.push(Event::failed(job, error)),
            CaseEnd::Stopped(job) => stopped.push(job),
        }
    }
    events.push(Event::GivenBack { jobs: stopped, delay: Duration::ZERO });
}

/// Keeps answers that are paid for, of a document that is not cut yet.
fn keep(document_id: i64, answers: &[u8]) -> Result<()> {
    stored::set_answers(document_id, Some(answers))
}

fn book(spent: &[(Arc<Target>, Usage)]) {
    for (target, spent) in spent {
        let Target { build, embedder, .. } = &**target;
        let price = embedder.config.remote.price_micros;
        let booked = txn::in_txn(|| {
            usage::add(ServiceKind::Embedder, &embedder.id, build.kb_no, &build.tenant_id, spent, price)
        });
        if let Err(error) = booked {
            report::log(&format!("worker cannot record the cost of a request: {error}"));
        }
    }
}
