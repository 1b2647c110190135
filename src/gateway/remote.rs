//! Embedders at remote providers: texts of many requests are put together in batches, one line per embedder,
//! and queries go past them.

use super::breaker::Breaker;
use super::egress::{AllowedHosts, origin};
use super::exchange::{Batch, Line};
use super::limiter::Limits;
use super::protocol::{Access, Embedded, Spent, Urgency, Usage};
use super::provider::{self, Provider};
use super::secret::{Reference, Secret};
use super::transport::Transport;
use crate::error::{Error, Result};
use crate::model::{Embedder, Kind};
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, oneshot};

/// What the server's configuration says of outbound connections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    pub allowed_hosts: AllowedHosts,
    pub secret_dir: Option<PathBuf>,
}

/// Texts to be embedded for one request of a client.
#[derive(Debug)]
pub struct Order {
    pub embedder: Embedder,
    pub access: Access,
    pub kind: Kind,
    pub urgency: Urgency,
    pub texts: Vec<String>,
    /// Tokens of each text where they are known.
    pub tokens: Vec<u32>,
}

/// An embedder, what its texts are and the key: what one HTTP request may mix.
type LineKey = (Embedder, Kind, Option<Secret>);
/// Host, key, requests and tokens a minute, requests under way: embedders alike in these share limits.
type LimitsKey = (String, Option<Secret>, Option<u32>, Option<u32>, usize);

pub struct Remote {
    /// Made with the first order: without CA certificates there is none, which is no matter to local models.
    transport: Mutex<Option<Arc<Transport>>>,
    settings: Mutex<Settings>,
    lanes: Mutex<HashMap<LineKey, Arc<Lane>>>,
    limits: Mutex<HashMap<LimitsKey, Arc<Limits>>>,
    breakers: Mutex<HashMap<String, Arc<Breaker>>>,
}

/// A line with the texts that wait for it.
struct Lane {
    line: Line,
    waiting: Mutex<VecDeque<Piece>>,
    filled: Notify,
}

/// One text of an order.
struct Piece {
    order: Arc<Pending>,
    index: usize,
    text: String,
    tokens: u32,
    spent: Spent,
}

/// An order that has not all its answers.
struct Pending {
    state: Mutex<State>,
}

struct State {
    results: Vec<Option<Result<Vec<f32>>>>,
    left: usize,
    usage: Usage,
    answer: Option<oneshot::Sender<(Vec<Result<Vec<f32>>>, Usage)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Remote {
    pub fn new(settings: Settings) -> Remote {
        Remote {
            transport: Mutex::default(),
            settings: Mutex::new(settings),
            lanes: Mutex::default(),
            limits: Mutex::default(),
            breakers: Mutex::default(),
        }
    }

    fn transport(&self) -> Result<Arc<Transport>, String> {
        let mut transport = lock(&self.transport);
        if let Some(transport) = transport.as_ref() {
            return Ok(Arc::clone(transport));
        }
        let made = Transport::new().map_err(|e| {
            format!("no HTTP client can be made: {e} (Debian's package ca-certificates brings them)")
        })?;
        Ok(Arc::clone(transport.insert(Arc::new(made))))
    }

    pub fn configure(&self, settings: Settings) {
        *lock(&self.settings) = settings;
    }

    /// Endpoints that are left alone for now.
    pub fn open_breakers(&self) -> usize {
        let now = std::time::Instant::now();
        lock(&self.breakers).values().filter(|breaker| breaker.is_open(now)).count()
    }

    /// Vectors of an order's texts, or an error for each that got none. Call within the runtime.
    pub async fn embed(&self, order: Order) -> Result<Embedded> {
        let lane = self.lane(&order)?;
        let dimension = order.embedder.dimension;
        let texts: Vec<String> = order.texts.iter().map(|text| provider_input(&order, text)).collect();
        let tokens: Vec<u32> = match order.tokens.len() == texts.len() {
            true => order.tokens,
            // About four bytes a token, where nobody counted.
            false => texts.iter().map(|text| text.len() as u32 / 4 + 1).collect(),
        };
        let spent = order.access.spent;
        let (results, usage) = match order.urgency {
            Urgency::Query => lane.query(texts, tokens, spent).await,
            Urgency::Ingest => lane.ingest(texts, tokens, spent).await,
        };
        Ok(Embedded::new(dimension, results, usage))
    }

    /// The line of an order, with everything checked that needs no connection.
    fn lane(&self, order: &Order) -> Result<Arc<Lane>> {
        let embedder = &order.embedder;
        let problem =
            |problem: String| Error::Provider { embedder: embedder.id.clone(), problem, passing: false };
        let provider = provider::find(&embedder.provider)
            .ok_or_else(|| Error::ProviderUnavailable { provider: embedder.provider.clone() })?;
        let base = embedder.base_url.as_deref().or(provider.base_url()).unwrap_or_default();
        let settings = lock(&self.settings).clone();
        settings.allowed_hosts.check(base).map_err(|e| problem(format!("base_url: {e}")))?;
        let host = origin(base).unwrap_or_default();
        let secret = secret(&order.access, &host, &settings).map_err(problem)?;
        let key = (embedder.clone(), order.kind, secret.clone());
        if let Some(lane) = lock(&self.lanes).get(&key) {
            return Ok(Arc::clone(lane));
        }
        let limits = self.limits(embedder, &host, secret.clone());
        let breaker =
            Arc::clone(lock(&self.breakers).entry(endpoint(embedder, provider, &host)).or_default());
        let line = Line {
            embedder: embedder.clone(),
            kind: order.kind,
            provider,
            secret,
            limits,
            breaker,
            transport: self.transport().map_err(problem)?,
        };
        let lane = Arc::new(Lane { line, waiting: Mutex::default(), filled: Notify::new() });
        let mut lanes = lock(&self.lanes);
        // Another task may have been quicker: its lane is the one that is served.
        if let Some(lane) = lanes.get(&key) {
            return Ok(Arc::clone(lane));
        }
        tokio::spawn(serve(Arc::clone(&lane)));
        lanes.insert(key, Arc::clone(&lane));
        Ok(lane)
    }

    fn limits(&self, embedder: &Embedder, host: &str, secret: Option<Secret>) -> Arc<Limits> {
        let remote = &embedder.config.remote;
        let key = (host.to_string(), secret, remote.rpm, remote.tpm, remote.max_concurrency);
        let make = || Arc::new(Limits::new(remote.max_concurrency, remote.rpm, remote.tpm));
        Arc::clone(lock(&self.limits).entry(key).or_insert_with(make))
    }
}

/// Where faults are counted together.
fn endpoint(embedder: &Embedder, provider: &dyn Provider, host: &str) -> String {
    let base = embedder.base_url.as_deref().or(provider.base_url()).unwrap_or_default();
    format!("{host} {base} {}", embedder.config.remote.path.as_deref().unwrap_or_default())
}

/// The key of an order, which goes to no other host than the one it is bound to.
fn secret(access: &Access, host: &str, settings: &Settings) -> Result<Option<Secret>, String> {
    let Some(reference) = &access.reference else { return Ok(None) };
    if access.host.as_deref() != Some(host) {
        return Err(format!(
            "its secret is not bound to {host}: give it again with kb.alter_embedder(…, secret => …)"
        ));
    }
    match (reference, &access.stored) {
        (Reference::Stored(_), Some(secret)) => Ok(Some(secret.clone())),
        (Reference::Stored(name), None) => Err(format!("secret kb:{name} does not exist; see kb.set_secret")),
        (reference, _) => {
            reference.resolve(settings.secret_dir.as_deref()).map(Some).map_err(|e| format!("secret: {e}"))
        }
    }
}

/// A text as the provider gets it.
fn provider_input(order: &Order, text: &str) -> String {
    let text = format!("{}{text}", order.embedder.prefix(order.kind));
    match order.embedder.config.remote.strip_newlines {
        true => text.replace(['\n', '\r'], " "),
        false => text,
    }
}

impl Lane {
    /// Texts that somebody waits for: past the queue, in a request of their own.
    async fn query(
        &self,
        texts: Vec<String>,
        tokens: Vec<u32>,
        spent: Spent,
    ) -> (Vec<Result<Vec<f32>>>, Usage) {
        let limits = &self.line.limits;
        let (mut results, mut usage) = (Vec::new(), Usage::default());
        let size = self.batch_size();
        for (texts, tokens) in texts.chunks(size).zip(tokens.chunks(size)) {
            // Ahead of ingestion until it may go; what is under way holds up nobody.
            let ahead = limits.query();
            let _place = limits.place().await;
            let may_go = !self.line.blocked() && limits.request().await.is_ok();
            drop(ahead);
            let batch = Batch { texts, tokens, spent, prepaid: may_go.then_some(0), is_of_one: true };
            let (some, part) = self.line.embed(&batch).await;
            results.extend(some);
            usage.add(&part);
        }
        (results, usage)
    }

    /// Texts that wait their turn, in requests with those of others.
    async fn ingest(
        &self,
        texts: Vec<String>,
        tokens: Vec<u32>,
        spent: Spent,
    ) -> (Vec<Result<Vec<f32>>>, Usage) {
        let (answer, answered) = oneshot::channel();
        let state = State {
            results: texts.iter().map(|_| None).collect(),
            left: texts.len(),
            usage: Usage::default(),
            answer: Some(answer),
        };
        let count = texts.len();
        let order = Arc::new(Pending { state: Mutex::new(state) });
        lock(&self.waiting).extend(
            texts.into_iter().zip(tokens).enumerate().map(|(index, (text, tokens))| Piece {
                order: Arc::clone(&order),
                index,
                text,
                tokens,
                spent,
            }),
        );
        drop(order);
        self.filled.notify_one();
        answered.await.unwrap_or_else(|_| {
            let lost = || Err(Error::Gateway { problem: "lost a batch".into() });
            ((0..count).map(|_| lost()).collect(), Usage::default())
        })
    }

    fn batch_size(&self) -> usize {
        let embedder = &self.line.embedder;
        embedder.config.batch_size.min(self.line.provider.max_batch(embedder)).max(1)
    }

    /// Tokens of the batch that would be taken now.
    fn next_tokens(&self) -> u32 {
        let most = self.line.embedder.config.remote.max_batch_tokens.unwrap_or(usize::MAX);
        let waiting = lock(&self.waiting);
        let mut tokens = 0usize;
        for piece in waiting.iter().filter(|piece| !piece.order.is_gone()).take(self.batch_size()) {
            if tokens > 0 && tokens + piece.tokens as usize > most {
                break;
            }
            tokens += piece.tokens as usize;
        }
        u32::try_from(tokens).unwrap_or(u32::MAX)
    }

    /// The next batch: as many waiting texts as one request may have, but at least one. Texts whose client
    /// is gone are dropped.
    fn take(&self) -> Vec<Piece> {
        let (size, most) = (self.batch_size(), self.line.embedder.config.remote.max_batch_tokens);
        let (mut batch, mut tokens) = (Vec::new(), 0);
        let mut waiting = lock(&self.waiting);
        while batch.len() < size {
            let Some(piece) = waiting.front() else { break };
            if piece.order.is_gone() {
                waiting.pop_front();
                continue;
            }
            tokens += piece.tokens as usize;
            if !batch.is_empty() && most.is_some_and(|most| tokens > most) {
                break;
            }
            batch.extend(waiting.pop_front());
        }
        batch
    }
}

/// A lane's loop: one batch after the other, as many at a time as the limits have places. A batch is put
/// together only when it may go, so that it fills while it waits.
async fn serve(lane: Arc<Lane>) {
    loop {
        while lock(&lane.waiting).is_empty() {
            lane.filled.notified().await;
        }
        let limits = &lane.line.limits;
        limits.after_queries().await;
        // A long pause is not waited for: the exchange reports it. No place is held while waiting, or a query would
        // wait, too.
        let mut prepaid = None;
        if !lane.line.blocked() && limits.request().await.is_ok() {
            let tokens = lane.next_tokens();
            limits.tokens(tokens).await;
            prepaid = Some(tokens);
        }
        let Some(place) = limits.place().await else { return };
        let batch = lane.take();
        if batch.is_empty() {
            continue;
        }
        let lane = Arc::clone(&lane);
        tokio::spawn(async move {
            send(&lane.line, batch, prepaid).await;
            drop(place);
        });
    }
}

async fn send(line: &Line, batch: Vec<Piece>, prepaid: Option<u32>) {
    let mut texts = Vec::with_capacity(batch.len());
    let mut places = Vec::with_capacity(batch.len());
    let spent = batch.iter().map(|piece| piece.spent).max().unwrap_or_default();
    for piece in batch {
        texts.push(piece.text);
        places.push((piece.order, piece.index, piece.tokens));
    }
    let tokens: Vec<u32> = places.iter().map(|(_, _, tokens)| *tokens).collect();
    let is_of_one = places.windows(2).all(|two| Arc::ptr_eq(&two[0].0, &two[1].0));
    let batch = Batch { texts: &texts, tokens: &tokens, spent, prepaid, is_of_one };
    let (results, usage) = line.embed(&batch).await;
    let estimated: u64 = tokens.iter().map(|n| u64::from(*n)).sum::<u64>().max(1);
    // Requests are counted once, with the batch's first order; tokens as the texts' share.
    let mut whole = Usage { texts: 0, tokens: 0, ..usage };
    for ((order, index, tokens), result) in places.into_iter().zip(results) {
        let share = usage.tokens * u64::from(tokens) / estimated;
        let texts = u64::from(result.is_ok());
        let part = Usage { texts, tokens: share, ..std::mem::take(&mut whole) };
        order.settle(index, result, &part);
    }
}

impl Pending {
    fn is_gone(&self) -> bool {
        lock(&self.state).answer.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// Takes one text's answer; with the last the order is answered.
    fn settle(&self, index: usize, result: Result<Vec<f32>>, usage: &Usage) {
        let mut state = lock(&self.state);
        state.usage.add(usage);
        state.left = state.left.saturating_sub(1);
        if let Some(place) = state.results.get_mut(index) {
            *place = Some(result);
        }
        if state.left == 0
            && let Some(answer) = state.answer.take()
        {
            let lost = || Err(Error::Internal("a text was not answered".into()));
            let results = std::mem::take(&mut state.results);
            let results = results.into_iter().map(|result| result.unwrap_or_else(lost)).collect();
            let _ = answer.send((results, state.usage));
        }
    }
}
