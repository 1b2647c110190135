//! Documents whose cutting asks models are prepared apart, those of each model on a thread of their own, so
//! that one that is slow to answer keeps no others back.
//!
//! What models said is kept in `kb.documents.answers` by a hash of what was asked, also of a document that
//! failed or was stopped, so that nothing is paid for twice.

use super::consult::{self, Ended, Outcome, Right, Rights, Task};
use super::prepare::{Document, Prepared};
use super::target::Target;
use crate::documents::stored;
use crate::jobs::queue::Job;
use crate::models::usage;
use crate::pg::{report, txn, wake};
use crate::settings;
use crate::worker::embed::pauses::Pauses;
use crate::worker::finish::open_documents::OpenDocuments;
use crate::worker::helper_thread;
use crate::worker::helper_thread::HelperThread;
use kb_gateway::protocol::{Capability, Usage};
use kb_types::error::{Error, Result};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Threads at most.
const THREADS: usize = 8;
/// A group of documents is prepared together up to this many bytes.
const GROUP_BYTES: usize = 2 * 1024 * 1024;
const GROUP_DOCUMENTS: usize = 32;
/// With so many documents, or bytes of them, waiting for a model no more are claimed that are embedded by the same.
const WAITING: usize = 64;

/// The models that a document is cut with: ids of the embedder and the chat model.
type Models = (String, Option<String>);

struct Running {
    /// Empty when the group was given up: its end is waited for.
    jobs: Vec<Job>,
    stop: Arc<AtomicBool>,
    ended: HelperThread<Ended>,
}

#[derive(Default)]
pub struct SlowIntake {
    waiting: BTreeMap<Models, VecDeque<Document>>,
    running: BTreeMap<Models, Running>,
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
        let is_full = |documents: &&VecDeque<Document>| {
            let bytes = documents.iter().map(Document::size).sum::<usize>();
            documents.len() >= WAITING || bytes >= GROUP_BYTES
        };
        let full = self.waiting.iter().filter(|(_, documents)| is_full(documents));
        full.map(|((embedder, _), _)| embedder.clone()).collect()
    }

    pub fn add(&mut self, document: Document) {
        let last = document.targets.iter().rfind(|(target, _)| target.asks_models());
        let Some((target, _)) = last else { return };
        let models = (target.embedder.id.clone(), target.llm.as_ref().map(|llm| llm.id.clone()));
        self.waiting.entry(models).or_default().push_back(document);
    }

    /// Begins what can begin, and returns what is prepared; whether anything moved. Unless it `may_begin`, what is under way
    /// ends as soon as it can.
    pub fn advance(
        &mut self,
        may_begin: bool,
        open: &mut OpenDocuments,
        pauses: &mut Pauses,
    ) -> Result<(Vec<Prepared>, bool)> {
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
                settle(ended?, open, pauses, &mut prepared)?;
            } else if let Ok(ended) = ended {
                book(&ended.spent);
            }
        }
        if !may_begin {
            self.running.values().for_each(|running| running.stop.store(true, Ordering::Relaxed));
            let jobs: Vec<Job> =
                std::mem::take(&mut self.waiting).into_values().flatten().map(|d| d.job).collect();
            open.outcomes().give_back(&jobs, Duration::ZERO)?;
            return Ok((prepared, moved));
        }
        let is_free = |models: &&Models| !self.running.contains_key(*models);
        let free: Vec<Models> = self.waiting.keys().filter(is_free).cloned().collect();
        for models in free.into_iter().take(THREADS.saturating_sub(self.running.len())) {
            moved = true;
            self.begin(models, pauses)?;
        }
        Ok((prepared, moved))
    }

    /// Begins with as many of the documents that wait for these models as go together.
    fn begin(&mut self, models: Models, pauses: &mut Pauses) -> Result<()> {
        let (documents, is_empty) = match self.waiting.get_mut(&models) {
            Some(waiting) => (take_group(waiting), waiting.is_empty()),
            None => return Ok(()),
        };
        if is_empty {
            self.waiting.remove(&models);
        }
        let (mut rights, mut refusals) = (Rights::new(), HashMap::new());
        documents.iter().for_each(|document| read_rights(document, &mut rights, &mut refusals, pauses));
        let jobs = documents.iter().map(|document| document.job.clone()).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let task = Task {
            documents,
            rights,
            refusals,
            model_dir: settings::model_dir(),
            limits: settings::limits(|| {}),
            stop: Arc::clone(&stop),
        };
        wake::start_gateway();
        let ended = helper_thread::begin(move || consult::consult(task))?;
        self.running.insert(models, Running { jobs, stop, ended });
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

/// The rights to ask the models that a document needs, or why they may not be asked now.
fn read_rights(
    document: &Document,
    rights: &mut Rights,
    refusals: &mut HashMap<i64, Error>,
    pauses: &mut Pauses,
) {
    for (target, _) in document.targets.iter().filter(|(target, _)| target.asks_models()) {
        let build_no = target.build.build_no;
        if rights.contains_key(&build_no) || refusals.contains_key(&build_no) {
            continue;
        }
        let right = pauses
            .check(&target.embedder, &target.build.tenant_id, Instant::now())
            .and_then(|()| txn::in_txn(|| Right::read(target)));
        match right {
            Ok(right) => drop(rights.insert(build_no, right)),
            Err(error) => {
                pauses.note(&target.embedder, &target.build.tenant_id, &error, Instant::now());
                refusals.insert(build_no, error);
            }
        }
    }
}

/// Books what was spent, keeps what was answered, and ends or hands on the documents.
fn settle(
    ended: Ended,
    open: &mut OpenDocuments,
    pauses: &mut Pauses,
    prepared: &mut Vec<Prepared>,
) -> Result<()> {
    book(&ended.spent);
    for (target, error) in &ended.refused {
        pauses.note(&target.embedder, &target.build.tenant_id, error, Instant::now());
    }
    let mut stopped = Vec::new();
    for (outcome, kept) in ended.outcomes {
        if let Some((document_id, answers)) = kept
            && let Err(error) = txn::in_txn(|| keep(document_id, &answers))
        {
            report::log(&format!("worker cannot keep what models said of a document: {error}"));
        }
        match outcome {
            Outcome::Prepared(document) => prepared.push(document),
            Outcome::Failed(job, error) => open.outcomes().fail(&job, &error)?,
            Outcome::Stopped(job) => stopped.push(job),
        }
    }
    open.outcomes().give_back(&stopped, Duration::ZERO)
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
            usage::add(Capability::Embed, &embedder.id, build.kb_no, &build.tenant_id, spent, price)
        });
        if let Err(error) = booked {
            report::log(&format!("worker cannot book what a request cost: {error}"));
        }
    }
}
