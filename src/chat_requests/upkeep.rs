//! Carries out the requests that are due: tenants take turns, and no transaction is open while a model is
//! asked. A request is deleted only when nothing is left to ask, so a worker that dies loses none.

use super::ask::{self, Answer};
use super::kind::{Asked, Kind, Next, Texts};
use super::sql::requests::{self, ChatRequest};
use crate::gateway::client;
use crate::models::{ask as models, embedder_access, services};
use crate::pg::{txn, wake};
use crate::settings;
use crate::upkeep::{Log, Upkeep};
use crate::work::{HelperThread, helper_thread};
use kb_gateway::protocol::{Request, Urgency};
use kb_types::error::{Error, Result};
use kb_types::sizes;
use kb_types::{Kind as TextKind, ServiceKind};
use std::time::{Duration, Instant};

/// The most requests under way: in all, of a chat model, so that one that is slow to answer does not keep
/// others back, and of a tenant.
const MOST: usize = 8;
const OF_LLM: usize = 4;
const OF_TENANT: usize = 2;
/// How many tenants are looked at in a round.
const TENANTS: usize = 64;
/// The pauses after errors that count as attempts: the first one, which doubles, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
/// The pause where the request is not the cause of an error, and where others of the same model are under
/// way.
const UNRELATED: Duration = Duration::from_secs(10);
const BUSY: Duration = Duration::from_secs(1);
/// How long an embedder is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

struct Running {
    request: ChatRequest,
    stage: Stage,
    answer: HelperThread<Result<Answer>>,
}

/// What was asked.
enum Stage {
    Embedder,
    Llm(Asked),
}

impl Running {
    fn asks(&self, llm: &str) -> bool {
        matches!(&self.stage, Stage::Llm(asked) if asked.llm == llm)
    }
}

/// An answer that could not be stored: another session had locked what it concerns, or the server lacks a
/// resource.
struct Unstored {
    request: ChatRequest,
    asked: Asked,
    answer: String,
    /// When it is tried again.
    again_at: Instant,
}

pub struct ChatRequests {
    kinds: Vec<Box<dyn Kind>>,
    running: Vec<Running>,
    unstored: Vec<Unstored>,
    /// The last tenant that was looked at.
    after: Option<String>,
    /// Whether requests were begun.
    has_begun: bool,
    has_moved: bool,
}

impl ChatRequests {
    pub fn new(kinds: Vec<Box<dyn Kind>>) -> ChatRequests {
        let (running, unstored) = (Vec::new(), Vec::new());
        ChatRequests { kinds, running, unstored, after: None, has_begun: false, has_moved: false }
    }
}

impl Upkeep for ChatRequests {
    fn run(&mut self, log: &mut Log) -> Result<()> {
        for kind in &mut self.kinds {
            self.has_moved |= kind.gather(false, log);
        }
        self.store_again()?;
        self.settle()?;
        // Where process slots are short, other databases wait for this worker's: it begins once.
        if self.running.len() < MOST && !(self.has_begun && wake::slots_are_short()) {
            self.begin()?;
        }
        Ok(())
    }

    fn is_done(&self) -> Result<bool> {
        Ok(!self.is_under_way() && !requests::any()?)
    }

    fn is_wanted(&self) -> Result<bool> {
        requests::any()
    }

    fn is_under_way(&self) -> bool {
        !self.running.is_empty() || !self.unstored.is_empty()
    }

    fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.has_moved)
    }

    fn end(&mut self, log: &mut Log) {
        for kind in &mut self.kinds {
            kind.gather(true, log);
        }
    }
}

impl ChatRequests {
    /// Stores the answers that have come.
    fn settle(&mut self) -> Result<()> {
        let done: Vec<Running> = self.running.extract_if(.., |running| running.answer.is_done()).collect();
        for Running { request, stage, mut answer } in done {
            self.has_moved = true;
            let Some(answer) = answer.take() else { continue };
            match (stage, answer.and_then(|answer| answer)) {
                (Stage::Llm(asked), Ok(Answer::Text(answer))) => {
                    self.store(Unstored { request, asked, answer, again_at: Instant::now() })?;
                }
                (Stage::Llm(asked), Err(error)) => record(&request, Some(&asked), &error)?,
                (Stage::Llm(_), Ok(Answer::Vectors(_))) => {
                    return Err(Error::Internal("vectors of a chat model".into()));
                }
                (Stage::Embedder, Ok(Answer::Vectors(vectors))) => self.begin_one(request, Some(&vectors))?,
                // It is done without vectors.
                (Stage::Embedder, _) => self.begin_one(request, Some(&[]))?,
            }
        }
        Ok(())
    }

    fn store_again(&mut self) -> Result<()> {
        let now = Instant::now();
        let due: Vec<Unstored> = self.unstored.extract_if(.., |unstored| unstored.again_at <= now).collect();
        for unstored in due {
            self.store(unstored)?;
        }
        Ok(())
    }

    /// Stores an answer. The request stays due: there may be more to ask.
    fn store(&mut self, mut unstored: Unstored) -> Result<()> {
        let Unstored { request, asked, answer, .. } = &unstored;
        match txn::in_txn(|| (asked.store)(answer)) {
            Ok(()) => Ok(()),
            // It is paid for, and kept until it can be stored.
            Err(error) if error.is_conflict() || !error.is_of_the_work() => {
                unstored.again_at = Instant::now() + BUSY;
                self.unstored.push(unstored);
                Ok(())
            }
            // What it concerns was deleted or changed: the next look at the request tells.
            Err(error) if error.is_of_rows() => retry(request, Some(asked), &error),
            Err(error) => record(request, Some(asked), &error),
        }
    }

    /// Begins what is due and has room.
    fn begin(&mut self) -> Result<()> {
        if !txn::in_txn(requests::any_due)? {
            return Ok(());
        }
        let each = OF_TENANT + MOST;
        let found = txn::in_txn(|| requests::due(self.after.as_deref(), TENANTS, each))?;
        self.after = found.last().map(|(tenant, _)| tenant.clone());
        for request in found.into_iter().filter_map(|(_, request)| request) {
            if self.running.len() >= MOST {
                break;
            }
            let under_way = self.running.iter().map(|running| &running.request);
            let under_way = under_way.chain(self.unstored.iter().map(|unstored| &unstored.request));
            let of_tenant: Vec<_> = under_way.filter(|other| other.tenant_id == request.tenant_id).collect();
            // A summary is made of the one before.
            let is_free = !of_tenant.iter().any(|other| other.is_beside(&request));
            if of_tenant.len() < OF_TENANT && is_free {
                self.begin_one(request, None)?;
            }
        }
        Ok(())
    }

    fn begin_one(&mut self, request: ChatRequest, vectors: Option<&[Vec<f32>]>) -> Result<()> {
        let asked = match self.prepare(&request, vectors)? {
            Some(Next::Embed(wanted)) => return self.embed(request, wanted),
            Some(Next::Ask(asked)) => asked,
            _ => return Ok(()),
        };
        if self.running.iter().filter(|running| running.asks(&asked.llm)).count() >= OF_LLM {
            return txn::in_txn(|| requests::put_off(request.request_no, BUSY, request.attempts, None));
        }
        let right = txn::in_txn(|| {
            let row = services::get(ServiceKind::Llm, &asked.llm)?;
            models::chat_access(&row, &request.tenant_id)
        });
        let (mut llm, access) = match right {
            Ok(right) => right,
            Err(error) => return record(&request, Some(&asked), &error),
        };
        let most = u32::try_from(asked.max_tokens).unwrap_or(u32::MAX);
        llm.config.max_output_tokens = Some(llm.config.max_output_tokens.unwrap_or(most).min(most));
        let client = client::this_client(&request.tenant_id, 0);
        let dialogue = asked.prompt.clone().into();
        let chat = Request::Chat { llm, access, dialogue, client, patience_ms: None };
        self.run_one(request, Stage::Llm(asked), chat)
    }

    /// Has texts embedded that a request needs. If that cannot be asked, it goes on without.
    fn embed(&mut self, request: ChatRequest, wanted: Texts) -> Result<()> {
        let Texts { embedder, kb_no, texts } = wanted;
        let right = txn::in_txn(|| {
            let embedder = services::embedder(&embedder)?;
            let access = embedder_access(&embedder, &request.tenant_id)?;
            Ok((embedder, access))
        });
        let Ok((embedder, access)) = right else { return self.begin_one(request, Some(&[])) };
        let embed = Request::Embed {
            embedder,
            access,
            kind: TextKind::Query,
            urgency: Urgency::of(&texts),
            tokens: Vec::new(),
            texts,
            client: client::this_client(&request.tenant_id, kb_no),
            patience_ms: u64::try_from(PATIENCE.as_millis()).ok(),
        };
        self.run_one(request, Stage::Embedder, embed)
    }

    fn run_one(&mut self, request: ChatRequest, stage: Stage, asked: Request) -> Result<()> {
        wake::start_gateway();
        let answer = helper_thread::begin(move || ask::ask(asked))?;
        self.running.push(Running { request, stage, answer });
        (self.has_begun, self.has_moved) = (true, true);
        Ok(())
    }

    /// What to ask for a request; None if nothing can be asked now.
    fn prepare(&mut self, request: &ChatRequest, vectors: Option<&[Vec<f32>]>) -> Result<Option<Next>> {
        let kind = self.kinds.iter_mut().find(|kind| kind.name() == request.kind);
        let kind = kind.ok_or_else(|| Error::Internal(format!("chat request of kind {}", request.kind)))?;
        let prepared = txn::in_txn(|| {
            if !requests::lock(request.request_no)? {
                return Ok(None);
            }
            match txn::with_latest_snapshot(|| kind.prepare(request, vectors))? {
                next @ (Next::Embed(_) | Next::Ask(_)) => return Ok(Some(next)),
                Next::Wait(delay) => requests::put_off(request.request_no, delay, request.attempts, None)?,
                Next::Finish => requests::delete(request.request_no)?,
            }
            Ok(None)
        });
        match prepared {
            Err(error) if !error.is_conflict() => record(request, None, &error).map(|()| None),
            Err(_) => Ok(None),
            prepared => prepared,
        }
    }
}

/// Puts a request off after an error, or gives it up. `asked` is what was asked, if anything was.
fn record(request: &ChatRequest, asked: Option<&Asked>, error: &Error) -> Result<()> {
    let text = error.to_string();
    let text = sizes::cut(&text, sizes::MESSAGE);
    if !error.is_of_the_work() {
        return txn::in_txn(|| {
            requests::put_off(request.request_no, UNRELATED, request.attempts, Some(text))
        });
    }
    match error.is_transient() {
        true => retry(request, asked, error),
        false => txn::in_txn(|| give_up(request, asked, request.attempts + 1, text)),
    }
}

fn give_up(request: &ChatRequest, asked: Option<&Asked>, attempts: i32, text: &str) -> Result<()> {
    if let Some(give_up) = asked.and_then(|asked| asked.give_up.as_ref()) {
        give_up()?;
    }
    requests::fail(request.request_no, asked.map_or(0, |asked| asked.version), attempts, text)
}

/// Puts a request off, with one more attempt, or gives it up after the last one.
fn retry(request: &ChatRequest, asked: Option<&Asked>, error: &Error) -> Result<()> {
    let text = error.to_string();
    let text = sizes::cut(&text, sizes::MESSAGE);
    let attempts = request.attempts + 1;
    txn::in_txn(|| {
        if attempts >= settings::max_attempts() {
            return give_up(request, asked, attempts, text);
        }
        let delay = RETRY.0.saturating_mul(1 << (attempts - 1).clamp(0, 16)).min(RETRY.1);
        requests::put_off(request.request_no, delay, attempts, Some(text))
    })
}
