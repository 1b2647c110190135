//! The server of the gateway: accepts connections on the Unix socket and answers requests concurrently.

use super::asked::Asked;
use super::cancellation::CancellationToken;
use super::connection::{self, Connections, Handler};
use super::embed::query_cache::{self, QueryCache};
use super::embed::queue_registry::{EmbedRequest, Queues};
use super::endpoint::access;
use super::endpoint::deadline::{self, DeadlineError};
use super::endpoint::usage::Usage;
use super::fetch::Fetcher;
use super::memory_accesses::MemoryAccesses;
use super::object_storage::ObjectStorage;
use super::protocol::{Client, EmbedReply, Health, Request, Response};
use super::provider;
use super::query_log::QueryLog;
use super::query_usage::QueryUsage;
use super::request_memory::Reservation;
use super::rerank::Question;
use super::services::{Caller, Services};
use super::turns::{Urgency, Whose};
use super::wanted_summaries::WantedSummaries;
use crate::local_models::Models;
use crate::semaphore::Places;
use kb_text::tokenizer::Tokenizer;
use kb_types::error::{Error, Result};
use kb_types::sync::lock;
use kb_types::{Bounds, Embedder, Kind, ServiceKind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::runtime::Runtime;

/// The settings of the gateway from the server's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub model_dir: PathBuf,
    /// How many threads compute. 0 means one for each core.
    pub model_threads: usize,
    pub query_cache_size: usize,
    pub endpoints: access::EgressSettings,
}

struct ServerState {
    models: Models,
    queues: Queues,
    services: Services,
    fetcher: Fetcher,
    storage: ObjectStorage,
    query_usage: Mutex<QueryUsage>,
    query_log: Mutex<QueryLog>,
    accesses: Mutex<MemoryAccesses>,
    wanted_summaries: Mutex<WantedSummaries>,
    cache: QueryCache,
    settings: Mutex<Settings>,
    /// Tokens are counted for one request at a time.
    counting: Arc<Places>,
}

/// A running gateway, which ends when this is dropped.
pub struct Server {
    runtime: Option<Runtime>,
    state: Arc<ServerState>,
}

/// A queue that is idle for this long is closed, and its key is forgotten.
const IDLE: Duration = Duration::from_secs(600);
/// How often that is checked.
const SWEEP: Duration = Duration::from_secs(60);

impl Server {
    /// Binds the socket and serves on threads of its own. A stale socket is replaced, so the caller must make
    /// sure that no other gateway runs. Signals must be blocked.
    pub fn start(socket: &str, settings: Settings) -> Result<Server> {
        let problem =
            |what: &str, e: std::io::Error| Error::Gateway { problem: format!("cannot {what}: {e}") };
        let state = ServerState::new(settings).map_err(|e| problem("start its model thread", e))?;
        let state = Arc::new(state);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("kb-gateway")
            .enable_all()
            .build()
            .map_err(|e| problem("start its runtime", e))?;
        let _ = std::fs::remove_file(socket);
        let listener = {
            let _context = runtime.enter();
            // The directory belongs to the server (0700), and the socket itself is closed to others, too.
            let listener = UnixListener::bind(socket).map_err(|e| problem("bind its socket", e))?;
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(socket, mode).map_err(|e| problem("protect its socket", e))?;
            listener
        };
        let accepting = Arc::clone(&state);
        runtime.spawn(async move {
            let connections = Arc::new(Connections::default());
            loop {
                connections.make_room().await;
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let (connections, state) = (Arc::clone(&connections), Arc::clone(&accepting));
                        tokio::spawn(connection::serve(stream, connections, state));
                    }
                    // For example, file descriptors are exhausted and other connections must close first.
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        });
        let swept = Arc::clone(&state);
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(SWEEP).await;
                swept.services.forget_idle(IDLE);
                swept.queues.forget_idle(IDLE);
                swept.fetcher.forget_idle();
                lock(&swept.query_log).forget_old();
                lock(&swept.accesses).forget_old();
                lock(&swept.wanted_summaries).forget_old();
            }
        });
        Ok(Server { runtime: Some(runtime), state })
    }

    /// Applies new settings. Running requests continue under the old ones.
    pub fn configure(&self, settings: Settings) {
        self.state.configure(settings);
    }

    /// New lines for the server's log.
    pub fn log_lines(&self) -> Vec<String> {
        self.state.queues.endpoints().log_lines()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Handler for ServerState {
    async fn answer(
        self: &Arc<Self>,
        request: Request,
        connection: u64,
        memory: Arc<Reservation>,
    ) -> Result<Response> {
        match request {
            Request::Embed { embedder, access, kind, urgency, texts, tokens, client, patience_ms } => {
                let Client { database, tenant, kb_no, is_shared } = client;
                let whose = Whose { database, tenant, connection };
                // This is dropped when the client leaves, which cancels the work.
                let (_waits, cancellation) = CancellationToken::new();
                let reservation = Some(memory);
                let request = EmbedRequest {
                    embedder,
                    access,
                    kind,
                    urgency,
                    texts,
                    tokens,
                    whose,
                    is_shared,
                    cancellation,
                    reservation,
                };
                if provider::find(ServiceKind::Embedder, &request.embedder.provider).is_none()
                    || urgency == Urgency::Ingest
                {
                    return Ok(Response::Embedded(embed(self, request, kb_no).await?));
                }
                ask_provider(self, request, kb_no, patience_ms.map(Duration::from_millis)).await
            }
            Request::Rerank { reranker, llm, access, query, texts, client, patience_ms } => {
                let asked = Asked::Scores(Box::new(Question { reranker, llm, access, query, texts }));
                ask_service(self, asked, client, connection, memory, patience_ms).await
            }
            Request::Chat { llm, access, dialogue, client, patience_ms } => {
                let asked = Asked::Words(Box::new(llm), access, dialogue);
                ask_service(self, asked, client, connection, memory, patience_ms).await
            }
            Request::Extract { extractor, access, file, client, patience_ms } => {
                let asked = Asked::Text(Box::new(extractor), access, file);
                ask_service(self, asked, client, connection, memory, patience_ms).await
            }
            Request::TakeUsage { database, booked } => {
                Ok(Response::Usage(lock(&self.query_usage).take(database, booked)))
            }
            Request::LogQuestion { database, question } => {
                lock(&self.query_log).add(database, *question);
                Ok(Response::Done)
            }
            Request::TakeQuestions { database, written } => {
                let (number, questions) = lock(&self.query_log).take(database, written);
                Ok(Response::Questions(number, questions))
            }
            Request::FindQuestion { database, query_id } => {
                Ok(Response::Question(lock(&self.query_log).find(database, query_id).map(Box::new)))
            }
            Request::CountAccesses { database, tenant, kb_no, at, document_ids } => {
                lock(&self.accesses).add(database, tenant, kb_no, at, &document_ids);
                Ok(Response::Done)
            }
            Request::TakeAccesses { database, written } => {
                Ok(Response::Accesses(lock(&self.accesses).take(database, written)))
            }
            Request::WantSummary { database, wanted } => {
                lock(&self.wanted_summaries).add(database, wanted);
                Ok(Response::Done)
            }
            Request::TakeWantedSummaries { database } => {
                Ok(Response::WantedSummaries(lock(&self.wanted_summaries).take(database)))
            }
            Request::CountTokens { embedder, texts } => {
                Ok(Response::Counts(self.counts(embedder, texts, connection, memory).await?))
            }
            Request::Fetch { fetch, client } => {
                let Client { database, tenant, .. } = client;
                let whose = Whose { database, tenant, connection };
                Ok(Response::Fetched(self.fetcher.fetch(*fetch, &whose).await))
            }
            Request::FetchMore(number) => Ok(Response::Fetched(self.fetcher.more(number, connection).await)),
            Request::ListObjects { bucket, access, prefix, next, client } => {
                let whose = Whose { database: client.database, tenant: client.tenant, connection };
                Ok(Response::Listed(
                    self.storage.list(&bucket, &access, &prefix, next.as_deref(), &whose).await,
                ))
            }
            Request::ReadObject { bucket, access, part, client } => {
                let whose = Whose { database: client.database, tenant: client.tenant, connection };
                Ok(Response::ReadPart(self.storage.read(&bucket, &access, &part, &whose).await))
            }
            Request::Health => {
                let settings = lock(&self.settings).clone();
                Ok(Response::Health(Health {
                    models: self.models.loaded(),
                    model_dir: settings.model_dir.display().to_string(),
                    open_breakers: self.queues.open_breakers(),
                }))
            }
        }
    }
}

impl ServerState {
    /// The number of tokens of each text, counted on a thread of its own.
    async fn counts(
        self: &Arc<Self>,
        embedder: Embedder,
        texts: Vec<String>,
        connection: u64,
        memory: Arc<Reservation>,
    ) -> Result<Vec<u32>> {
        let whose = Whose { connection, ..Whose::default() };
        let place = self.counting.take(Urgency::of(&texts), &whose).await;
        let state = Arc::clone(self);
        let counts = tokio::task::spawn_blocking(move || {
            let _until_done = (place, memory);
            count_tokens(&state, &embedder, &texts)
        });
        counts.await.map_err(|_| Error::Internal("counting tokens failed".into()))?
    }

    fn new(settings: Settings) -> std::io::Result<ServerState> {
        let queues = Queues::new(settings.endpoints.clone());
        Ok(ServerState {
            models: Models::start(settings.model_dir.clone(), settings.model_threads)?,
            services: Services::new(queues.endpoints()),
            fetcher: Fetcher::new(queues.endpoints()),
            storage: ObjectStorage::new(queues.endpoints()),
            queues,
            query_usage: Mutex::new(QueryUsage::new()),
            query_log: Mutex::new(QueryLog::new()),
            accesses: Mutex::new(MemoryAccesses::new()),
            wanted_summaries: Mutex::default(),
            cache: QueryCache::new(settings.query_cache_size),
            settings: Mutex::new(settings),
            counting: Places::new(1),
        })
    }

    /// Applies new settings. Running requests continue under the old ones.
    fn configure(&self, settings: Settings) {
        let mut current = lock(&self.settings);
        if current.model_dir != settings.model_dir {
            self.models.set_model_dir(settings.model_dir.clone());
            self.cache.clear();
        }
        self.models.set_threads(settings.model_threads);
        self.queues.configure(settings.endpoints.clone());
        self.cache.resize(settings.query_cache_size);
        *current = settings;
    }

    /// The cache key for the vector of a question. None for any other request.
    fn cache_key(&self, request: &EmbedRequest, is_remote: bool) -> Result<Option<query_cache::CacheKey>> {
        let [text] = request.texts.as_slice() else { return Ok(None) };
        if request.kind != Kind::Query {
            return Ok(None);
        }
        let EmbedRequest { embedder, access, whose, .. } = request;
        // The right is checked even if the vector is cached, because a client without it must get an error.
        let right = match is_remote {
            true => self.queues.right_digest(embedder, access)?,
            false => Default::default(),
        };
        Ok(query_cache::key(whose, embedder, &right, request.kind, text))
    }
}

/// Counts the tokens of each text. The tokeniser splits long texts, so it needs little memory.
fn count_tokens(state: &ServerState, embedder: &Embedder, texts: &[String]) -> Result<Vec<u32>> {
    let dir = lock(&state.settings).model_dir.clone();
    let tokenizer = Tokenizer::for_embedder(embedder, &dir)?;
    texts.iter().map(|text| Ok(tokenizer.count(text, &Bounds::none())? as u32)).collect()
}

/// Embeds a question or a bulk call at a provider, as long as the client waits.
async fn ask_provider(
    state: &Arc<ServerState>,
    mut request: EmbedRequest,
    kb_no: i64,
    patience: Option<Duration>,
) -> Result<Response> {
    let embedder = request.embedder.id.clone();
    let state = Arc::clone(state);
    let embedded = deadline::within(patience, |cancellation| async move {
        request.cancellation = cancellation;
        embed(&state, request, kb_no).await
    });
    let embedded = embedded.await.map_err(|error| match error {
        DeadlineError::Late(_) => Error::Provider { embedder, problem: error.to_string(), passing: true },
        DeadlineError::Panicked => Error::Internal(error.to_string()),
    })?;
    Ok(Response::Embedded(embedded?))
}

/// Calls a reranker, chat model or extractor, as long as the client waits.
async fn ask_service(
    state: &Arc<ServerState>,
    asked: Asked,
    client: Client,
    connection: u64,
    memory: Arc<Reservation>,
    patience_ms: Option<u64>,
) -> Result<Response> {
    let (late, state) = (asked.late(), Arc::clone(state));
    let answer = deadline::within(patience_ms.map(Duration::from_millis), |cancellation| async move {
        let _until_done = memory;
        let Client { database, tenant, kb_no, .. } = client;
        let whose = Whose { database, tenant: tenant.clone(), connection };
        // Ingestion waits as long as it takes.
        let urgency = if patience_ms.is_some() { Urgency::Query } else { Urgency::Ingest };
        let caller = Caller { whose, spent: asked.spent(), urgency, cancellation };
        let (endpoint, kind) = asked.booked_as();
        let mut usage = Usage::default();
        let answer = asked.answer(&state.services, &state.models, &caller, &mut usage).await;
        // A query cannot write, so the worker books its usage.
        if usage != Usage::default() {
            lock(&state.query_usage).add((database, endpoint, kind, kb_no, tenant), &usage);
        }
        answer
    });
    answer.await.map_err(|error| match error {
        DeadlineError::Late(_) => late(error.to_string()),
        DeadlineError::Panicked => Error::Internal(error.to_string()),
    })?
}

/// Embeds by a local model or at a provider, or takes the vector of a repeated question from the cache.
async fn embed(state: &ServerState, request: EmbedRequest, kb_no: i64) -> Result<EmbedReply> {
    let dimension = request.embedder.dimension;
    let is_remote = provider::find(ServiceKind::Embedder, &request.embedder.provider).is_some();
    let key = state.cache_key(&request, is_remote)?;
    let asking = request.whose.clone();
    let model_dir = lock(&state.settings).model_dir.clone();
    if let Some(vector) = key.and_then(|key| state.cache.get(&asking, &key)) {
        return Ok(EmbedReply::new(dimension, vec![Ok(vector)], Usage::default()));
    }
    let embedded = if is_remote {
        let Whose { database, tenant, .. } = request.whose.clone();
        let (embedder, urgency) = (request.embedder.id.clone(), request.urgency);
        let embedded = state.queues.embed(request).await?;
        // The worker books the usage in its own answers. A query cannot write.
        if urgency != Urgency::Ingest && embedded.usage != Usage::default() {
            let key = (database, embedder, ServiceKind::Embedder, kb_no, tenant);
            lock(&state.query_usage).add(key, &embedded.usage);
        }
        embedded
    } else {
        let EmbedRequest { embedder, kind, urgency, whose, texts, .. } = request;
        let vectors = state.models.embed(&embedder, kind, urgency, &whose, texts).await?;
        EmbedReply::new(dimension, vectors.into_iter().map(Ok).collect(), Usage::default())
    };
    if let Some(key) = key.filter(|_| embedded.failed.is_empty()) {
        // A model of the same name in another directory has other vectors.
        let settings = lock(&state.settings);
        if settings.model_dir == model_dir {
            state.cache.put(&asking, key, embedded.vectors.numbers());
        }
    }
    Ok(embedded)
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
