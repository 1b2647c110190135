//! The gateway's server: accepts connections on the Unix socket and answers requests concurrently.

use super::asker::Asker;
use super::cache::QueryCache;
use super::models::Models;
use super::protocol::{self, Client, Embedded, Health, QueryUsage, Request, Response, Urgency, Usage};
use super::provider;
use super::remote::{self, Order, Remote};
use crate::error::{Error, Result};
use crate::model::{Bounds, Embedder, Kind};
use crate::tokenizer::Tokenizer;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

/// What the gateway is told by the server's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub model_dir: PathBuf,
    pub query_cache_size: usize,
    pub remote: remote::Settings,
}

struct State {
    models: Models,
    remote: Remote,
    /// What queries spent, by database, embedder and knowledge base, until the database asks for it.
    query_usage: Mutex<HashMap<(u32, String, i64), Usage>>,
    cache: QueryCache,
    settings: Mutex<Settings>,
}

/// A running gateway; dropping it ends it.
pub struct Server {
    runtime: Option<Runtime>,
    state: Arc<State>,
}

/// Answers of one connection that wait to be written.
const OUTBOX: usize = 64;
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
        let state = Arc::new(State { models, remote, query_usage, cache, settings: Mutex::new(settings) });
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
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let state = Arc::clone(&accepting);
                        tokio::spawn(serve(stream, state));
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

/// One connection: requests are answered as they are done, in any order.
async fn serve(stream: UnixStream, state: Arc<State>) {
    let (mut reader, mut writer) = stream.into_split();
    let (outbox, mut outgoing) = mpsc::channel::<Vec<u8>>(OUTBOX);
    let writing = tokio::spawn(async move {
        while let Some(frame) = outgoing.recv().await {
            if writer.write_all(&frame).await.is_err() {
                break;
            }
        }
    });
    loop {
        let mut prefix = [0u8; 4];
        if reader.read_exact(&mut prefix).await.is_err() {
            break;
        }
        let Ok(length) = protocol::frame_length(prefix) else { break };
        let mut content = vec![0; length];
        if reader.read_exact(&mut content).await.is_err() {
            break;
        }
        let Ok(request) = protocol::decode::<Request>(&content) else { break };
        drop(content);
        let (state, outbox) = (Arc::clone(&state), outbox.clone());
        tokio::spawn(async move {
            // A client that is gone closes the channel; then the work is dropped at its next await.
            let answer = tokio::select! {
                answer = answer(&state, request.body) => answer,
                () = outbox.closed() => return,
            };
            let response = answer.unwrap_or_else(|error| Response::Error(error.into()));
            if let Ok(frame) = protocol::encode(request.id, response) {
                let _ = outbox.send(frame).await;
            }
        });
    }
    // The client is gone: ending the writer closes the channel, which drops what is unanswered.
    writing.abort();
}

async fn answer(state: &Arc<State>, request: Request) -> Result<Response> {
    match request {
        Request::Embed { embedder, access, kind, urgency, texts, tokens, client, patience_ms } => {
            let order = Order { embedder, access, kind, urgency, texts, tokens, asker: Asker::default() };
            if provider::find(&order.embedder.provider).is_none() || urgency == Urgency::Ingest {
                return Ok(Response::Embedded(embed(state, order, client).await?));
            }
            ask_provider(state, order, client, patience_ms.map(Duration::from_millis)).await
        }
        Request::TakeUsage { database } => {
            let mut all = state.query_usage.lock().unwrap_or_else(PoisonError::into_inner);
            let (mut taken, mut kept) = (Vec::new(), HashMap::new());
            for ((of, embedder, kb_no), usage) in all.drain() {
                match of == database {
                    true => taken.push(QueryUsage { embedder, kb_no, usage }),
                    false => drop(kept.insert((of, embedder, kb_no), usage)),
                }
            }
            *all = kept;
            Ok(Response::Usage(taken))
        }
        Request::CountTokens { embedder, texts } => {
            let state = Arc::clone(state);
            let counts = tokio::task::spawn_blocking(move || count_tokens(&state, &embedder, &texts));
            let counts = counts.await.map_err(|_| Error::Internal("counting tokens failed".into()))??;
            Ok(Response::Counts(counts))
        }
        Request::Health => {
            let settings = state.settings.lock().unwrap_or_else(PoisonError::into_inner).clone();
            Ok(Response::Health(Health {
                models: state.models.loaded(),
                cached_queries: state.cache.len(),
                model_dir: settings.model_dir.display().to_string(),
                open_breakers: state.remote.open_breakers(),
            }))
        }
    }
}

fn count_tokens(state: &State, embedder: &Embedder, texts: &[String]) -> Result<Vec<u32>> {
    if provider::find(&embedder.provider).is_some() {
        let dir = state.settings.lock().unwrap_or_else(PoisonError::into_inner).model_dir.clone();
        let tokenizer = Tokenizer::for_embedder(embedder, &dir)?;
        return texts.iter().map(|text| Ok(tokenizer.count(text, &Bounds::none())? as u32)).collect();
    }
    let model = state.models.model(embedder)?;
    Ok(texts.iter().map(|text| model.count_tokens(text) as u32).collect())
}

/// A question to a provider, or texts that somebody waits for. Once it is sent it is seen to its end though the client
/// leaves: it is paid for, and a provider that does not answer must be known by that.
async fn ask_provider(
    state: &Arc<State>,
    mut order: Order,
    client: Client,
    patience: Option<Duration>,
) -> Result<Response> {
    let embedder = order.embedder.id.clone();
    let (waiting, asker) = Asker::new();
    order.asker = asker;
    let state = Arc::clone(state);
    let work = tokio::spawn(async move { embed(&state, order, client).await });
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
async fn embed(state: &State, order: Order, client: Client) -> Result<Embedded> {
    let (embedder, kind) = (order.embedder.clone(), order.kind);
    let question = match order.texts.as_slice() {
        [text] if kind == Kind::Query => Some(text.clone()),
        _ => None,
    };
    let known = question.as_ref().and_then(|text| state.cache.get(&embedder, kind, text));
    if let Some(vector) = known {
        return Ok(Embedded::new(embedder.dimension, vec![Ok(vector)], Usage::default()));
    }
    let embedded = if provider::find(&embedder.provider).is_some() {
        let urgency = order.urgency;
        let embedded = state.remote.embed(order).await?;
        // The worker books what it sees in the answer; a query cannot write.
        if urgency == Urgency::Query {
            let mut all = state.query_usage.lock().unwrap_or_else(PoisonError::into_inner);
            all.entry((client.database, embedder.id.clone(), client.kb_no)).or_default().add(&embedded.usage);
        }
        embedded
    } else {
        let vectors = state.models.embed(order.embedder, kind, order.urgency, order.texts).await?;
        Embedded::new(embedder.dimension, vectors.into_iter().map(Ok).collect(), Usage::default())
    };
    if let Some(text) = question.filter(|_| embedded.failed.is_empty()) {
        state.cache.put(&embedder, kind, &text, embedded.vectors.numbers());
    }
    Ok(embedded)
}
