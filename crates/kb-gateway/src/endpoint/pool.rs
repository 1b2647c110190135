//! The state that endpoints share: HTTP clients, limits and budgets of keys, and breakers.

use super::access::{Access, Authorization, EgressSettings};
use super::breaker::Breaker;
use super::budget::Budget;
use super::call::{Configuration, Endpoint};
use super::egress::Reach;
use super::limiter::Limits;
use super::outages::Outages;
use super::secret::Secret;
use super::transport::Transport;
use kb_types::sync::lock;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use url::Url;

/// The account that pays: host and digest of the key. The key itself is kept only in endpoints.
type Account = (String, Option<[u8; 32]>);
/// Account, purpose other than embedding, requests and tokens a minute, and requests in flight. Endpoints
/// with the same key share limits. A chat model that hangs or is throttled does not delay an embedder of the
/// same account.
type LimitsKey = (Account, Option<String>, Option<u32>, Option<u32>, usize);

/// The error if there is no HTTP client.
pub fn no_client(e: String) -> String {
    format!(
        "could not create an HTTP client: {e} (on Debian, package ca-certificates provides the root certificates)"
    )
}

pub struct Endpoints {
    settings: Mutex<EgressSettings>,
    /// Created when needed, because that fails without CA certificates, and local models must work anyway.
    transports: Mutex<HashMap<Reach, Arc<Transport>>>,
    limits: Mutex<HashMap<LimitsKey, Arc<Limits>>>,
    budgets: Mutex<HashMap<Account, Arc<Budget>>>,
    /// The usage of tenants over all accounts.
    quotas: Arc<Budget>,
    /// By host, base URL and path.
    breakers: Mutex<HashMap<String, Arc<Breaker>>>,
    outages: Arc<Mutex<Outages>>,
}

impl Endpoints {
    pub fn new(settings: EgressSettings) -> Endpoints {
        Endpoints {
            settings: Mutex::new(settings),
            transports: Mutex::default(),
            limits: Mutex::default(),
            budgets: Mutex::default(),
            quotas: Arc::default(),
            breakers: Mutex::default(),
            outages: Arc::default(),
        }
    }

    pub fn configure(&self, settings: EgressSettings) {
        *lock(&self.settings) = settings;
    }

    /// Checks an access under the current settings; see [`Authorization::check`].
    pub fn authorize(
        &self,
        base_url: &str,
        is_free_form: bool,
        access: &Access,
    ) -> Result<Authorization, String> {
        let settings = lock(&self.settings).clone();
        Authorization::check(&settings, base_url, is_free_form, access)
    }

    /// The endpoint for an authorization.
    pub fn endpoint(
        &self,
        configuration: Configuration,
        authorization: Authorization,
    ) -> Result<Endpoint, String> {
        let Authorization { host, secret, reach } = authorization;
        let transport = self.transport(reach)?;
        let digest =
            secret.as_ref().map(|secret: &Secret| *blake3::hash(secret.expose().as_bytes()).as_bytes());
        let place = format!(
            "{host} {} {}",
            configuration.base_url,
            configuration.path.as_deref().unwrap_or_default()
        );
        let account = (host, digest);
        let Configuration { rpm, tpm, max_concurrency, .. } = configuration;
        let service = configuration.path.clone().filter(|_| configuration.is_service);
        let limits = Arc::clone(
            lock(&self.limits)
                .entry((account.clone(), service, rpm, tpm, max_concurrency))
                .or_insert_with(|| Arc::new(Limits::new(max_concurrency, rpm, tpm))),
        );
        let budget = Arc::clone(lock(&self.budgets).entry(account).or_default());
        let breaker = Arc::clone(lock(&self.breakers).entry(place).or_default());
        let quotas = Arc::clone(&self.quotas);
        let outages = Arc::clone(&self.outages);
        Ok(Endpoint { configuration, secret, limits, budget, quotas, breaker, transport, outages })
    }

    /// Checks an address that a document or a source names, and returns the client for it.
    pub fn page(&self, address: &str) -> Result<(Url, Arc<Transport>), String> {
        let hosts = lock(&self.settings).allowed_hosts.clone();
        let url = hosts.check(address, true).map_err(|e| e.to_string())?;
        Ok((url, self.transport(hosts.reach(true))?))
    }

    fn transport(&self, reach: Reach) -> Result<Arc<Transport>, String> {
        let mut transports = lock(&self.transports);
        if let Some(transport) = transports.get(&reach) {
            return Ok(Arc::clone(transport));
        }
        let made = Transport::new(reach).map_err(no_client)?;
        Ok(Arc::clone(transports.entry(reach).or_insert(Arc::new(made))))
    }

    /// The lines for the server's log about failing endpoints.
    pub fn log_lines(&self) -> Vec<String> {
        lock(&self.outages).lines(Instant::now())
    }

    /// The number of endpoints whose breaker is open.
    pub fn open_breakers(&self) -> usize {
        let now = Instant::now();
        lock(&self.breakers).values().filter(|breaker| breaker.is_open(now)).count()
    }

    /// Forgets limits, budgets and breakers that no endpoint uses any more and that have nothing to remember.
    pub fn forget_unused(&self) {
        lock(&self.limits).retain(|_, limits| Arc::strong_count(limits) > 1 || limits.throttled().is_some());
        lock(&self.budgets).retain(|_, budget| Arc::strong_count(budget) > 1 || budget.is_needed());
        let now = Instant::now();
        lock(&self.breakers).retain(|_, breaker| Arc::strong_count(breaker) > 1 || breaker.is_open(now));
    }
}
