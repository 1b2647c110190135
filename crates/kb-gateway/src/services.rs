//! The endpoints of rerankers, chat models and extractors, which are found by their rows, called for one
//! client, and closed when idle.

use super::cancellation::CancellationToken;
use super::endpoint::access::Access;
use super::endpoint::budget::Spent;
use super::endpoint::call::{CallError, CallOptions, Configuration, Endpoint, Operation};
use super::endpoint::egress::Reach;
use super::endpoint::pool::Endpoints;
use super::endpoint::secret::Secret;
use super::endpoint::transport::Auth;
use super::endpoint::usage::Usage;
use super::provider::Provider;
use super::turns::{Urgency, Whose};
use kb_types::ServiceKind;
use kb_types::error::{Error, Result};
use kb_types::remote_settings::Remote;
use kb_types::sync::lock;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How a reranker, chat model or extractor is reached.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Service {
    pub kind: ServiceKind,
    pub id: String,
    pub base_url: String,
    pub auth: Auth,
    /// See [`Provider::is_free_form`].
    pub is_free_form: bool,
    /// The path after base_url. It separates endpoints with different purposes at one base_url, so that a
    /// fault of one does not stop another.
    pub path: String,
    pub remote: Remote,
}

/// The client for which an endpoint is called.
#[derive(Debug, Clone)]
pub struct Caller {
    pub whose: Whose,
    pub spent: Spent,
    pub urgency: Urgency,
    /// Cancelled when the client leaves.
    pub cancellation: CancellationToken,
}

type Key = (Service, Option<Secret>, Reach);

pub struct Services {
    endpoints: Arc<Endpoints>,
    kept: Mutex<HashMap<Key, (Arc<Endpoint>, Instant)>>,
}

impl Services {
    /// `endpoints` is shared with embedders, because a key has one budget and one set of limits, whatever it
    /// is used for.
    pub fn new(endpoints: Arc<Endpoints>) -> Services {
        Services { endpoints, kept: Mutex::default() }
    }

    /// The endpoint of a service, if the access allows calling it.
    pub fn endpoint(&self, service: &Service, access: &Access) -> Result<Arc<Endpoint>> {
        let refused = |problem: String| service.error(CallError::Refused(problem));
        let authorization =
            self.endpoints.authorize(&service.base_url, service.is_free_form, access).map_err(refused)?;
        let key = (service.clone(), authorization.secret.clone(), authorization.reach);
        if let Some((endpoint, used)) = lock(&self.kept).get_mut(&key) {
            *used = Instant::now();
            return Ok(Arc::clone(endpoint));
        }
        let endpoint = self.endpoints.endpoint(service.configuration(), authorization).map_err(refused)?;
        let mut kept = lock(&self.kept);
        let (endpoint, _) = kept.entry(key).or_insert_with(|| (Arc::new(endpoint), Instant::now()));
        Ok(Arc::clone(endpoint))
    }

    /// Forgets endpoints that have been idle for this long, and their keys.
    pub fn forget_idle(&self, idle: Duration) {
        lock(&self.kept).retain(|_, (_, used)| used.elapsed() < idle);
    }
}

impl Service {
    /// `path` is the provider's own path for a base_url. That of the config replaces it.
    pub fn new<P: Into<String>>(
        kind: ServiceKind,
        id: &str,
        provider: &Provider,
        base_url: Option<&str>,
        remote: &Remote,
        path: impl FnOnce(&str) -> P,
    ) -> Service {
        let base_url = base_url.or(provider.base_url()).unwrap_or_default().to_string();
        let path = remote.path.clone().unwrap_or_else(|| path(&base_url).into());
        Service {
            kind,
            id: id.to_string(),
            base_url,
            auth: provider.auth,
            is_free_form: provider.is_free_form,
            path,
            remote: remote.clone(),
        }
    }

    fn configuration(&self) -> Configuration {
        let remote = &self.remote;
        Configuration {
            name: format!("{} {:?}", self.kind, self.id),
            base_url: self.base_url.clone(),
            path: Some(self.path.clone()),
            is_service: true,
            auth: self.auth,
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

    /// The URL of requests.
    pub fn url(&self) -> String {
        format!("{}{}", self.base_url.trim_end_matches('/'), self.path)
    }

    /// Calls the endpoint for a client. Adds the cost to `usage`, even if it fails.
    pub async fn call<O: Operation>(
        &self,
        endpoint: &Endpoint,
        operation: &O,
        estimate: u64,
        caller: &Caller,
        usage: &mut Usage,
    ) -> Result<O::Output> {
        let Caller { whose, spent, urgency, cancellation } = caller;
        endpoint.reserve_of_tenant(whose, estimate, *spent).map_err(|error| self.error(error))?;
        let options = CallOptions {
            estimate,
            spent: *spent,
            admitted: None,
            quote: true,
            attempts: endpoint.configuration.retry.max_attempts,
            blames_endpoint: true,
            is_probe: false,
            urgency: *urgency,
            whose,
            cancellation,
        };
        let mut cost = Usage::default();
        let result = endpoint.call(operation, &options, &mut cost).await;
        endpoint.spend_of_tenant(whose, cost.tokens, estimate);
        usage.add(&cost);
        result.map_err(|error| self.error(error))
    }

    /// Converts an error for the client.
    pub fn error(&self, error: CallError) -> Error {
        let (problem, passing) = match error {
            CallError::Paused { throttled, .. } => {
                let (kind, id) = (self.kind, self.id.clone());
                return Error::ServicePaused { kind, id, problem: throttled.reason };
            }
            CallError::Cancelled => return left(self.kind, &self.id),
            CallError::Fault(problem) => (problem, true),
            CallError::Rejected { problem, .. } | CallError::Refused(problem) => (problem, false),
        };
        Error::Service { kind: self.kind, id: self.id.clone(), problem, passing }
    }
}

/// The error of a call whose client no longer waits.
pub fn left(kind: ServiceKind, id: &str) -> Error {
    Error::Service { kind, id: id.to_string(), problem: "its client has left".into(), passing: true }
}

/// Estimates the tokens of texts at about four bytes each.
pub fn estimate<'a>(texts: impl IntoIterator<Item = &'a str>) -> u64 {
    texts.into_iter().map(|text| text.len() as u64 / 4 + 1).sum()
}
