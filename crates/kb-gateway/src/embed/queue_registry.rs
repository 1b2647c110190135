//! Embedders at endpoints: finds the queue for a request, and closes idle queues.

use super::super::cancellation::CancellationToken;
use super::super::endpoint::access::{Access, Authorization, EgressSettings};
use super::super::endpoint::call::Configuration;
use super::super::endpoint::egress::Reach;
use super::super::endpoint::pool::Endpoints;
use super::super::endpoint::secret::Secret;
use super::super::protocol::EmbedReply;
use super::super::provider::{self, EmbedApi, Provider};
use super::super::request_memory::Reservation;
use super::super::turns::{Urgency, Whose};
use super::queue::{Queue, Requester};
use super::remote_model::RemoteModel;
use kb_types::error::{Error, Result};
use kb_types::sync::lock;
use kb_types::{Embedder, Kind, ServiceKind};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A client's request to embed texts.
#[derive(Debug)]
pub struct EmbedRequest {
    pub embedder: Embedder,
    pub access: Access,
    pub kind: Kind,
    pub urgency: Urgency,
    pub texts: Vec<String>,
    /// The tokens of each text, where they are known.
    pub tokens: Vec<u32>,
    pub whose: Whose,
    /// See [`crate::protocol::Client`].
    pub is_shared: bool,
    /// Cancelled when the client leaves.
    pub cancellation: CancellationToken,
    /// The memory of the request, which is kept as long as any of its texts.
    pub reservation: Option<Arc<Reservation>>,
}

/// Texts may share a batch only if these are the same. Urgency is among them, so that an urgent text does not
/// wait for a batch that waits for tokens.
type QueueKey = (Embedder, Kind, Option<Secret>, Reach, Urgency);

pub struct Queues {
    endpoints: Arc<Endpoints>,
    queues: Mutex<HashMap<QueueKey, Arc<Queue>>>,
}

impl Queues {
    pub fn new(settings: EgressSettings) -> Queues {
        Queues { endpoints: Arc::new(Endpoints::new(settings)), queues: Mutex::default() }
    }

    /// The state that all endpoints share, including those of rerankers and chat models.
    pub fn endpoints(&self) -> Arc<Endpoints> {
        Arc::clone(&self.endpoints)
    }

    pub fn configure(&self, settings: EgressSettings) {
        self.endpoints.configure(settings);
    }

    /// The number of endpoints whose breaker is open.
    pub fn open_breakers(&self) -> usize {
        self.endpoints.open_breakers()
    }

    /// Embeds the texts of a request. Each gets a vector or an error. Must be called within the runtime.
    pub async fn embed(&self, request: EmbedRequest) -> Result<EmbedReply> {
        let queue = self.queue(&request)?;
        let requester = Requester {
            urgency: request.urgency,
            whose: request.whose.clone(),
            is_shared: request.is_shared,
            spent: request.access.spent,
            cancellation: request.cancellation.clone(),
            _reservation: request.reservation.clone(),
        };
        let dimension = request.embedder.dimension;
        let texts: Vec<String> = request.texts.iter().map(|text| input(&request, text)).collect();
        let tokens: Vec<u32> = match request.tokens.len() == texts.len() {
            true => request.tokens,
            // Tokens that were not counted are estimated at four bytes each.
            false => texts.iter().map(|text| text.len() as u32 / 4 + 1).collect(),
        };
        let (results, usage) = match request.urgency {
            Urgency::Query => queue.ask(texts, tokens, &requester).await,
            Urgency::Bulk | Urgency::Ingest => queue.wait(texts, tokens, requester).await,
        };
        Ok(EmbedReply::new(dimension, results, usage))
    }

    /// A digest of the right to use an embedder. Returns an error without such a right.
    pub fn right_digest(&self, embedder: &Embedder, access: &Access) -> Result<[u8; 32]> {
        Ok(self.authorize(embedder, access)?.2.digest())
    }

    fn authorize(
        &self,
        embedder: &Embedder,
        access: &Access,
    ) -> Result<(&'static Provider, &'static dyn EmbedApi, Authorization)> {
        let (provider, api) =
            provider::with_api(ServiceKind::Embedder, &embedder.provider, |provider| provider.embed)?;
        let authorization =
            self.endpoints.authorize(base_url(embedder, provider), provider.is_free_form, access);
        Ok((provider, api, authorization.map_err(|problem| provider_error(embedder, problem))?))
    }

    fn queue(&self, request: &EmbedRequest) -> Result<Arc<Queue>> {
        let EmbedRequest { embedder, access, kind, urgency, .. } = request;
        let (provider, api, authorization) = self.authorize(embedder, access)?;
        let key = (embedder.clone(), *kind, authorization.secret.clone(), authorization.reach, *urgency);
        if let Some(queue) = lock(&self.queues).get(&key) {
            return Ok(Queue::handle(queue));
        }
        let endpoint = self.endpoints.endpoint(configuration(embedder, provider), authorization);
        let endpoint = endpoint.map_err(|problem| provider_error(embedder, problem))?;
        let model = RemoteModel { embedder: embedder.clone(), kind: *kind, api, endpoint };
        // Another task may have been faster, in which case its queue is used.
        Ok(Queue::handle(lock(&self.queues).entry(key).or_insert_with(|| Queue::open(model))))
    }

    /// Closes queues that have been idle for this long, and forgets their keys and shared state.
    pub fn forget_idle(&self, idle: Duration) {
        // New handles are only given out under this lock.
        lock(&self.queues).retain(|_, queue| !Queue::close_if_idle(queue, idle));
        self.endpoints.forget_unused();
    }

    /// The number of open queues.
    pub fn count(&self) -> usize {
        lock(&self.queues).len()
    }
}

fn provider_error(embedder: &Embedder, problem: String) -> Error {
    Error::Provider { embedder: embedder.id.clone(), problem, passing: false }
}

fn base_url<'a>(embedder: &'a Embedder, provider: &Provider) -> &'a str {
    embedder.base_url.as_deref().or(provider.base_url()).unwrap_or_default()
}

fn configuration(embedder: &Embedder, provider: &Provider) -> Configuration {
    let remote = &embedder.config.remote;
    Configuration {
        name: format!("embedder {:?}", embedder.id),
        base_url: base_url(embedder, provider).to_string(),
        path: remote.path.clone(),
        is_service: false,
        auth: provider.auth,
        headers: remote.headers.clone(),
        timeout: Duration::from_millis(remote.timeout_ms),
        retry: remote.retry,
        rpm: remote.rpm,
        tpm: remote.tpm,
        max_concurrency: remote.max_concurrency,
        daily_token_budget: remote.daily_token_budget,
        tenant_budget: remote.tenant_budget(),
    }
}

/// A text as it is sent to the provider.
fn input(request: &EmbedRequest, text: &str) -> String {
    let text = format!("{}{text}", request.embedder.prefix(request.kind));
    match request.embedder.config.remote.strip_newlines {
        true => text.replace(['\n', '\r'], " "),
        false => text,
    }
}
