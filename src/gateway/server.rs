//! The gateway's server: accepts connections on the Unix socket and answers requests concurrently.

use super::asker::Asker;
use super::cache::{self, QueryCache};
use super::connection::{self, Connections};
use super::memory::{Held, Memory};
use super::models::Models;
use super::protocol::{Client, Embedded, Health, QueryUsage, Request, Response, Urgency, Usage};
use super::provider;
use super::remote::{self, Order, Remote};
use super::turns::{Places, Whose};
use crate::error::{Error, Result};
use crate::model::{Bounds, Embedder, Kind};
use crate::tokenizer::Tokenizer;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::runtime::Runtime;

/// What the gateway is told by the server's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub model_dir: PathBuf,
    pub query_cache_size: usize,
    pub remote: remote::Settings,
}

pub(super) struct State {
    models: Models,
    remote: Remote,
    /// What queries spent, until their database asks for it.
    query_usage: Mutex<HashMap<UsageKey, Usage>>,
    cache: QueryCache,
    settings: Mutex<Settings>,
    pub(super) connections: Connections,
    /// What questions hold in memory, and what all other requests do.
    pub(super) questions: Arc<Memory>,
    pub(super) requests: Arc<Memory>,
    /// Counting tokens is done for one at a time.
    counting: Arc<Places>,
}

/// Database, embedder, knowledge base and tenant.
type UsageKey = (u32, String, i64, String);

/// Different ones that are kept; what more of them cost is booked for no knowledge base and the unnamed tenant. And how
/// many are given out at once.
const USAGE_KEYS: usize = 10_000;
const USAGE_PART: usize = 1000;
/// Bytes that questions and all other requests hold at most.
const QUESTIONS: usize = 64 * 1024 * 1024;
const REQUESTS: usize = 512 * 1024 * 1024;

/// A running gateway; dropping it ends it.
pub struct Server {
    runtime: Option<Runtime>,
    state: Arc<State>,
}

/// An embedder that nobody has asked for so long is forgotten, and its key with it; and how often that is looked for.
const IDLE: Duration = Duration::from_secs(600);
const SWEEP: Duration = Duration::from_secs(60);

impl Server {
    /// Binds the socket (replacing a stale one; the caller makes sure that no other gateway runs) and
    /// serves on threads of its own. Call with signals blocked.
    pub fn start(socket: &str, settings: Settings) -> Result<Server> {
        let problem =
            |what: &str, e: std::io::Error| Error::Gateway { problem: format!("cannot {what}: {e}") };
        let models =
            Models::start(settings.model_dir.clone()).map_err(|e| problem("start its model thread", e))?;
        let cache = QueryCache::new(settings.query_cache_size);
        let remote = Remote::new(settings.remote.clone());
        let query_usage = Mutex::default();
        let state = Arc::new(State {
            models,
            remote,
            query_usage,
            cache,
            settings: Mutex::new(settings),
            connections: Connections::default(),
            questions: Memory::new(QUESTIONS),
            requests: Memory::new(REQUESTS),
            counting: Places::new(1),
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("kb-gateway")
            .enable_all()
            .build()
            .map_err(|e| problem("start its runtime", e))?;
        let _ = std::fs::remove_file(socket);
        let listener = {
            let _context = runtime.enter();
            // The directory is the server's own (0700); the socket itself is closed to others too.
            let listener = UnixListener::bind(socket).map_err(|e| problem("bind its socket", e))?;
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(socket, mode).map_err(|e| problem("protect its socket", e))?;
            listener
        };
        let accepting = Arc::clone(&state);
        runtime.spawn(async move {
            loop {
                accepting.connections.make_room().await;
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let state = Arc::clone(&accepting);
                        tokio::spawn(connection::serve(stream, state));
                    }
                    // Out of descriptors, say: others must close first.
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        });
        let swept = Arc::clone(&state);
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(SWEEP).await;
                swept.remote.forget_idle(IDLE);
            }
        });
        Ok(Server { runtime: Some(runtime), state })
    }

    /// Takes new settings; running requests go on under the old ones.
    pub fn configure(&self, settings: Settings) {
        let mut current = self.state.settings.lock().unwrap_or_else(PoisonError::into_inner);
        if current.model_dir != settings.model_dir {
            self.state.models.set_model_dir(settings.model_dir.clone());
            self.state.cache.clear();
        }
        self.state.remote.configure(settings.remote.clone());
        self.state.cache.resize(settings.query_cache_size);
        *current = settings;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The answer to a request that came by a connection of this number. What it holds in memory goes with its texts: work
/// may go on when the client is gone.
pub(super) async fn answer(
    state: &Arc<State>,
    request: Request,
    connection: u64,
    held: Arc<Held>,
) -> Result<Response> {
    match request {
        Request::Embed { embedder, access, kind, urgency, texts, tokens, client, patience_ms } => {
            let Client { database, tenant, kb_no } = client;
            let whose = Whose { database, tenant, connection };
            let (asker, held) = (Asker::default(), Some(held));
            let order = Order { embedder, access, kind, urgency, texts, tokens, whose, asker, held };
            if provider::find(&order.embedder.provider).is_none() || urgency == Urgency::Ingest {
                return Ok(Response::Embedded(embed(state, order, kb_no).await?));
            }
            ask_provider(state, order, kb_no, patience_ms.map(Duration::from_millis)).await
        }
        Request::TakeUsage { database } => Ok(Response::Usage(state.take_usage(database))),
        Request::CountTokens { embedder, texts } => {
            let whose = Whose { connection, ..Whose::default() };
            let place = state.counting.take(Urgency::of(&texts), &whose).await;
            let state = Arc::clone(state);
            let counts = tokio::task::spawn_blocking(move || {
                let _until_done = (place, held);
                count_tokens(&state, &embedder, &texts)
            });
            let counts = counts.await.map_err(|_| Error::Internal("counting tokens failed".into()))??;
            Ok(Response::Counts(counts))
        }
        Request::Health => {
            let settings = state.settings.lock().unwrap_or_else(PoisonError::into_inner).clone();
            Ok(Response::Health(Health {
                models: state.models.loaded(),
                model_dir: settings.model_dir.display().to_string(),
                open_breakers: state.remote.open_breakers(),
            }))
        }
    }
}

impl State {
    fn add_usage(&self, key: UsageKey, usage: &Usage) {
        let mut all = self.query_usage.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = all.len() < USAGE_KEYS || all.contains_key(&key);
        let key = if is_known { key } else { (key.0, key.1, 0, String::new()) };
        all.entry(key).or_default().add(usage);
    }

    /// Some of what queries of a database cost.
    fn take_usage(&self, database: u32) -> Vec<QueryUsage> {
        let mut all = self.query_usage.lock().unwrap_or_else(PoisonError::into_inner);
        all.extract_if(|key, _| key.0 == database)
            .take(USAGE_PART)
            .map(|((_, embedder, kb_no, tenant), usage)| QueryUsage { embedder, kb_no, tenant, usage })
            .collect()
    }

    /// What was remembered for this question, under this key.
    fn cache_key(&self, order: &Order, is_remote: bool) -> Result<Option<cache::CacheKey>> {
        let [text] = order.texts.as_slice() else { return Ok(None) };
        if order.kind != Kind::Query {
            return Ok(None);
        }
        let Order { embedder, access, whose, .. } = order;
        // Who may not ask is told so, whatever others were answered.
        let right = match is_remote {
            true => self.remote.right_digest(embedder, access)?,
            false => Default::default(),
        };
        Ok(cache::key(whose, embedder, &right, order.kind, text))
    }
}

/// In pieces, so that a long text takes no memory.
fn count_tokens(state: &State, embedder: &Embedder, texts: &[String]) -> Result<Vec<u32>> {
    let dir = state.settings.lock().unwrap_or_else(PoisonError::into_inner).model_dir.clone();
    let tokenizer = Tokenizer::for_embedder(embedder, &dir)?;
    texts.iter().map(|text| Ok(tokenizer.count(text, &Bounds::none())? as u32)).collect()
}

/// A question to a provider, or texts that somebody waits for. Once it is sent it is seen to its end though the client
/// leaves: it is paid for, and a provider that does not answer must be known by that.
async fn ask_provider(
    state: &Arc<State>,
    mut order: Order,
    kb_no: i64,
    patience: Option<Duration>,
) -> Result<Response> {
    let embedder = order.embedder.id.clone();
    let (waiting, asker) = Asker::new();
    order.asker = asker;
    let state = Arc::clone(state);
    let work = tokio::spawn(async move { embed(&state, order, kb_no).await });
    // The client's own clock runs, too: the provider is named before it says that the gateway does not answer.
    let patience = patience.map(|patience| patience - patience / 20);
    let answer = match patience {
        Some(patience) => tokio::time::timeout(patience, work).await,
        None => Ok(work.await),
    };
    drop(waiting);
    let problem = || {
        let ms = patience.unwrap_or_default().as_millis();
        format!(
            "no answer within {ms} ms: the provider is slow, or its limits (rpm, tpm, max_concurrency) are used up"
        )
    };
    let late = |_| Error::Provider { embedder, problem: problem(), passing: true };
    let embedded =
        answer.map_err(late)?.map_err(|_| Error::Internal("asking a provider failed".into()))??;
    Ok(Response::Embedded(embedded))
}

/// By a model here, or by a provider elsewhere; a single question from the cache if it was asked before.
async fn embed(state: &State, order: Order, kb_no: i64) -> Result<Embedded> {
    let dimension = order.embedder.dimension;
    let is_remote = provider::find(&order.embedder.provider).is_some();
    let key = state.cache_key(&order, is_remote)?;
    if let Some(vector) = key.and_then(|key| state.cache.get(&key)) {
        return Ok(Embedded::new(dimension, vec![Ok(vector)], Usage::default()));
    }
    let embedded = if is_remote {
        let Whose { database, tenant, .. } = order.whose.clone();
        let (embedder, urgency) = (order.embedder.id.clone(), order.urgency);
        let embedded = state.remote.embed(order).await?;
        // The worker books what it sees in the answer; a query cannot write.
        if urgency != Urgency::Ingest && embedded.usage != Usage::default() {
            state.add_usage((database, embedder, kb_no, tenant), &embedded.usage);
        }
        embedded
    } else {
        let Order { embedder, kind, urgency, whose, texts, .. } = order;
        let vectors = state.models.embed(&embedder, kind, urgency, &whose, texts).await?;
        Embedded::new(dimension, vectors.into_iter().map(Ok).collect(), Usage::default())
    };
    if let Some(key) = key.filter(|_| embedded.failed.is_empty()) {
        state.cache.put(key, embedded.vectors.numbers());
    }
    Ok(embedded)
}
