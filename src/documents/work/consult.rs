//! Documents whose cutting asks models, or whose text extraction services find: asks them, on a thread that
//! calls nothing of PostgreSQL, and cuts.

use super::compare::{self, Compared};
use super::prepare::{self, Document, Means, Prepared};
use crate::gateway::client;
use crate::gateway::pump::Pump;
use crate::jobs::queue::Job;
use crate::models::ask;
use crate::models::embedder_access;
use crate::work::Target;
use kb_gateway::protocol::{Access, Client, Request, Response, Usage};
use kb_text::context::read_sentence;
use kb_text::model_answers::{Answers, Ask, Consulted, FileAsk};
use kb_types::error::{Error, Result};
use kb_types::{Extractor, Llm, ServiceKind};
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A document is cut at most so often: for its text, for its sentences, for its chunks, and with all answers.
const ROUNDS: usize = 5;

/// The right to ask the models and services of a build.
pub struct Right {
    pub target: Arc<Target>,
    pub vectors: Access,
    pub chat: Option<(Llm, Access)>,
    pub files: Vec<(Extractor, Access)>,
    pub client: Client,
}

impl Right {
    /// In a transaction.
    pub fn read(target: &Arc<Target>) -> Result<Right> {
        let tenant = &target.build.tenant_id;
        let chat = target.llm.as_ref().map(|row| ask::chat_access(row, tenant)).transpose()?;
        let vectors = match target.asks_models() {
            true => embedder_access(&target.embedder, tenant)?,
            false => Access::default(),
        };
        let file = |extractor: &Extractor| ask::extractor_access(&extractor.id, tenant);
        Ok(Right {
            vectors,
            chat,
            files: target.extractors.iter().map(file).collect::<Result<_>>()?,
            client: client::this_client(tenant, target.build.kb_no),
            target: Arc::clone(target),
        })
    }
}

/// By build.
pub type Rights = HashMap<i64, Right>;

/// What is needed on the thread.
pub struct Task {
    pub documents: Vec<Document>,
    pub rights: Rights,
    /// Why models of other builds may not be asked.
    pub refusals: HashMap<i64, Error>,
    pub means: Means,
    /// Ask nothing more.
    pub stop: Arc<AtomicBool>,
}

/// What became of a document.
pub enum CaseEnd {
    Prepared(Prepared),
    Failed(Job, Error),
    /// Not all was asked: it is taken up again later.
    Stopped(Job),
}

impl CaseEnd {
    /// Whether its extraction service is not called for a while.
    pub fn is_paused_extractor(&self) -> bool {
        let kind = match self {
            CaseEnd::Failed(_, Error::ServicePaused { kind, .. }) => Some(*kind),
            _ => None,
        };
        kind == Some(ServiceKind::Extractor)
    }
}

pub struct Consultation {
    /// Each with what is to be kept of what models said, where that is not in what was prepared: document_id
    /// and answers.
    pub outcomes: Vec<(CaseEnd, Option<(i64, Vec<u8>)>)>,
    /// What embedding has cost; the gateway keeps what chat models have.
    pub spent: Vec<(Arc<Target>, Usage)>,
    /// Embedders that refused, and why.
    pub refused: Vec<(Arc<Target>, Error)>,
}

/// A document under way.
pub struct Case {
    document: Document,
    pub consulted: Consulted,
    result: Option<Result<Prepared, (Job, Error)>>,
}

pub fn consult(task: Task) -> Consultation {
    let Task { documents, rights, refusals, means, stop } = task;
    let mut ended = Consultation { outcomes: Vec::new(), spent: Vec::new(), refused: Vec::new() };
    let mut cases: Vec<Case> = documents.into_iter().map(Case::new).collect();
    for case in &mut cases {
        refusals.iter().for_each(|(build_no, error)| case.consulted.refuse(*build_no, error.clone()));
    }
    for round in 0..ROUNDS {
        for case in cases.iter_mut().filter(|case| case.result.is_none()) {
            case.prepare(&means);
        }
        let is_over = cases.iter().all(|case| case.result.is_some());
        if is_over || stop.load(Ordering::Relaxed) || round + 1 == ROUNDS {
            break;
        }
        if let Err(error) = ask(&mut cases, &rights, &stop, &mut ended) {
            for case in &mut cases {
                rights.keys().for_each(|build_no| case.consulted.refuse(*build_no, error.clone()));
            }
        }
    }
    let is_stopped = stop.load(Ordering::Relaxed);
    ended.outcomes = cases.into_iter().map(|case| case.end(is_stopped)).collect();
    ended
}

impl Case {
    fn new(document: Document) -> Case {
        let known = document.stored.answers.as_deref().map(Answers::decode).unwrap_or_default();
        Case { document, consulted: Consulted::new(known), result: None }
    }

    fn prepare(&mut self, means: &Means) {
        let document = self.document.clone();
        self.result = prepare::prepare(document, means, &mut self.consulted).transpose();
    }

    fn end(self, is_stopped: bool) -> (CaseEnd, Option<(i64, Vec<u8>)>) {
        let Case { document, consulted, result } = self;
        let kept = || {
            let encoded = consulted.known.encode().ok().flatten();
            let changed = encoded.filter(|answers| Some(answers) != document.stored.answers.as_ref());
            changed.map(|answers| (document.stored.document_id, answers))
        };
        match result {
            Some(Ok(prepared)) => (CaseEnd::Prepared(prepared), None),
            Some(Err((job, error))) => (CaseEnd::Failed(job, error), kept()),
            None if is_stopped => (CaseEnd::Stopped(document.job.clone()), kept()),
            None => {
                let error = Error::Internal("models were called too many times for one document".into());
                (CaseEnd::Failed(document.job.clone(), error), kept())
            }
        }
    }
}

/// Whether documents are of several tenants.
pub fn are_of_several(cases: &[Case]) -> bool {
    let mut tenants = cases.iter().map(|case| &case.document.job.tenant_id);
    let first = tenants.next();
    tenants.any(|tenant| Some(tenant) != first)
}

/// Asks what the documents want, build by build.
fn ask(cases: &mut [Case], rights: &Rights, stop: &AtomicBool, ended: &mut Consultation) -> Result<()> {
    let mut pump = Pump::open()?;
    for right in rights.values() {
        let Compared { usage, refused } = compare::compare(cases, right, stop, &mut pump)?;
        let target = &right.target;
        if usage != Usage::default() {
            ended.spent.push((Arc::clone(target), usage));
        }
        ended.refused.extend(refused.map(|error| (Arc::clone(target), error)));
        if let Some((llm, access)) = &right.chat {
            chat(cases, right, (llm, access), stop, &mut pump)?;
        }
        for (extractor, access) in right.files.iter().filter(|_| !stop.load(Ordering::Relaxed)) {
            read_files(cases, right, (extractor, access), stop, &mut pump)?;
        }
    }
    Ok(())
}

/// Asks an extraction service of a build for the text of files. A file that it cannot read fails alone.
fn read_files(
    cases: &mut [Case],
    right: &Right,
    (extractor, access): (&Extractor, &Access),
    stop: &AtomicBool,
    pump: &mut Pump,
) -> Result<()> {
    let build_no = right.target.build.build_no;
    let is_own = |ask: &FileAsk| ask.build_no == build_no && ask.extractor == extractor.id;
    let mut waiting: VecDeque<(usize, FileAsk)> = VecDeque::new();
    for (case, asked) in cases.iter_mut().enumerate() {
        waiting.extend(asked.consulted.files.extract_if(.., |ask| is_own(ask)).map(|ask| (case, ask)));
    }
    let paused = RefCell::new(None);
    let sent = RefCell::new(Vec::new());
    let left = RefCell::new(waiting);
    let next = || {
        if stop.load(Ordering::Relaxed) || paused.borrow().is_some() {
            return None;
        }
        let (case, FileAsk { key, file, .. }) = left.borrow_mut().pop_front()?;
        sent.borrow_mut().push((case, key));
        let (extractor, access, client) = (extractor.clone(), access.clone(), right.client.clone());
        Some(Request::Extract { extractor, access, file, client, patience_ms: None })
    };
    let take = |number: usize, response| {
        let Some((case, key)) = sent.borrow().get(number).copied() else { return };
        let consulted = &mut cases[case].consulted;
        let error = match response {
            Response::Extracted(text) => return consulted.known.add_file(key, text),
            Response::Error(fault) => Error::from(fault),
            other => Error::Internal(format!("unexpected answer of the gateway: {other:?}")),
        };
        if matches!(error, Error::ServicePaused { .. }) {
            paused.borrow_mut().get_or_insert(error.clone());
        }
        consulted.refuse(build_no, error);
    };
    // Reading a file can take minutes, for which a worker that is to end does not wait.
    pump.run_unless(stop, extractor.config.remote.max_concurrency, next, take)?;
    if let Some(error) = paused.into_inner() {
        for (case, _) in left.into_inner() {
            cases[case].consulted.refuse(build_no, error.clone());
        }
    }
    Ok(())
}

/// Asks a build's chat model for sentences.
fn chat(
    cases: &mut [Case],
    right: &Right,
    (llm, access): (&Llm, &Access),
    stop: &AtomicBool,
    pump: &mut Pump,
) -> Result<()> {
    let build_no = right.target.build.build_no;
    let mut asks: Vec<(usize, Ask)> = Vec::new();
    for (case, asked) in cases.iter().enumerate() {
        let own = asked.consulted.asks.iter().filter(|ask| ask.build_no == build_no);
        asks.extend(own.map(|ask| (case, ask.clone())));
    }
    let refused = std::cell::RefCell::new(None);
    let mut waiting = asks.iter();
    let next = || {
        if stop.load(Ordering::Relaxed) || refused.borrow().is_some() {
            return None;
        }
        let (_, ask) = waiting.next()?;
        let (llm, access, client) = (llm.clone(), access.clone(), right.client.clone());
        let dialogue = ask.prompt.clone().into();
        Some(Request::Chat { llm, access, dialogue, client, patience_ms: None })
    };
    let wrong =
        |problem| Error::Service { kind: ServiceKind::Llm, id: llm.id.clone(), problem, passing: false };
    let take = |number: usize, response| {
        let Some((case, ask)) = asks.get(number) else { return };
        let sentence = match response {
            Response::Chatted(answer) => read_sentence(&answer.text).map_err(wrong),
            Response::Error(fault) => Err(fault.into()),
            other => Err(Error::Internal(format!("unexpected answer of the gateway: {other:?}"))),
        };
        let consulted = &mut cases[*case].consulted;
        match sentence {
            Ok(sentence) => consulted.known.add_sentence(ask.key, sentence),
            Err(error) => {
                consulted.refuse(build_no, error.clone());
                if error.is_transient() {
                    refused.borrow_mut().get_or_insert(error);
                }
            }
        }
    };
    pump.run(llm.config.remote.max_concurrency, next, take)?;
    if let Some(error) = refused.into_inner() {
        // The model's words may repeat a text, which no other tenant may see.
        let error = match error {
            Error::Service { kind, id, passing, .. } if are_of_several(cases) => {
                Error::Service { kind, id, problem: "it failed for another document".into(), passing }
            }
            error => error,
        };
        for (case, _) in &asks {
            cases[*case].consulted.refuse(build_no, error.clone());
        }
    }
    Ok(())
}
