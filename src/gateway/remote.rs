//! Embedders at remote providers: which lane an order goes by, and what lanes share.

use super::asker::Asker;
use super::breaker::Breaker;
use super::budget::Budget;
use super::egress::{AllowedHosts, Reach, origin};
use super::exchange::Line;
use super::lane::{Lane, Wish, lock};
use super::limiter::Limits;
use super::memory::Held;
use super::protocol::{Access, Embedded, Urgency};
use super::provider::{self, Provider};
use super::secret::{Reference, Secret, Sources};
use super::transport::Transport;
use super::turns::Whose;
use crate::error::{Error, Result};
use crate::model::{Embedder, Kind};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What the server's configuration says of outbound connections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    pub allowed_hosts: AllowedHosts,
    pub secrets: Sources,
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
    pub whose: Whose,
    /// Of texts that somebody waits for.
    pub asker: Asker,
    /// What it holds in memory, as long as any of its texts is there.
    pub held: Option<Arc<Held>>,
}

/// What an embedder is asked by, checked.
struct Right {
    provider: &'static dyn Provider,
    host: String,
    secret: Option<Secret>,
    reach: Reach,
}

/// An embedder, what its texts are, the key and where it may connect to: what one HTTP request may mix.
type LineKey = (Embedder, Kind, Option<Secret>, Reach);
/// Host and digest of the key: who pays. The key itself is kept in lanes only.
type Account = (String, Option<[u8; 32]>);
/// Account, requests and tokens a minute, requests under way: embedders alike in these share limits.
type LimitsKey = (Account, Option<u32>, Option<u32>, usize);

pub struct Remote {
    /// Made with the first order: without CA certificates there is none, which is no matter to local models.
    transports: Mutex<HashMap<Reach, Arc<Transport>>>,
    settings: Mutex<Settings>,
    lanes: Mutex<HashMap<LineKey, Arc<Lane>>>,
    limits: Mutex<HashMap<LimitsKey, Arc<Limits>>>,
    budgets: Mutex<HashMap<Account, Arc<Budget>>>,
    breakers: Mutex<HashMap<String, Arc<Breaker>>>,
}

impl Remote {
    pub fn new(settings: Settings) -> Remote {
        Remote {
            transports: Mutex::default(),
            settings: Mutex::new(settings),
            lanes: Mutex::default(),
            limits: Mutex::default(),
            budgets: Mutex::default(),
            breakers: Mutex::default(),
        }
    }

    fn transport(&self, reach: Reach) -> Result<Arc<Transport>, String> {
        let mut transports = lock(&self.transports);
        if let Some(transport) = transports.get(&reach) {
            return Ok(Arc::clone(transport));
        }
        let made = Transport::new(reach).map_err(|e| {
            format!("no HTTP client can be made: {e} (Debian's package ca-certificates brings them)")
        })?;
        Ok(Arc::clone(transports.entry(reach).or_insert(Arc::new(made))))
    }

    pub fn configure(&self, settings: Settings) {
        *lock(&self.settings) = settings;
    }

    /// Endpoints that are left alone for now.
    pub fn open_breakers(&self) -> usize {
        let now = Instant::now();
        lock(&self.breakers).values().filter(|breaker| breaker.is_open(now)).count()
    }

    /// Vectors of an order's texts, or an error for each that got none. Call within the runtime.
    pub async fn embed(&self, order: Order) -> Result<Embedded> {
        let lane = self.lane(&order)?;
        let wish = Wish {
            urgency: order.urgency,
            whose: order.whose.clone(),
            spent: order.access.spent,
            asker: order.asker.clone(),
            _held: order.held.clone(),
        };
        let dimension = order.embedder.dimension;
        let texts: Vec<String> = order.texts.iter().map(|text| provider_input(&order, text)).collect();
        let tokens: Vec<u32> = match order.tokens.len() == texts.len() {
            true => order.tokens,
            // About four bytes a token, where nobody counted.
            false => texts.iter().map(|text| text.len() as u32 / 4 + 1).collect(),
        };
        let (results, usage) = match order.urgency {
            Urgency::Query => lane.query(texts, tokens, &wish).await,
            Urgency::Bulk | Urgency::Ingest => lane.queue(texts, tokens, wish).await,
        };
        Ok(Embedded::new(dimension, results, usage))
    }

    /// Whether an embedder may be asked by this right, and a digest of the key and where it goes: what came by one right
    /// is not told to who has another.
    pub fn right_digest(&self, embedder: &Embedder, access: &Access) -> Result<[u8; 32]> {
        let right = self.right(embedder, access)?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(right.host.as_bytes());
        hasher.update(&[0, u8::from(right.secret.is_some())]);
        hasher.update(right.secret.as_ref().map(Secret::expose).unwrap_or_default().as_bytes());
        Ok(*hasher.finalize().as_bytes())
    }

    /// Everything is checked that needs no connection.
    fn right(&self, embedder: &Embedder, access: &Access) -> Result<Right> {
        let problem =
            |problem: String| Error::Provider { embedder: embedder.id.clone(), problem, passing: false };
        let provider = provider::find(&embedder.provider)
            .ok_or_else(|| Error::ProviderUnavailable { provider: embedder.provider.clone() })?;
        let base = embedder.base_url.as_deref().or(provider.base_url()).unwrap_or_default();
        let settings = lock(&self.settings).clone();
        let is_free_form = provider.is_free_form();
        settings.allowed_hosts.check(base, is_free_form).map_err(|e| problem(format!("base_url: {e}")))?;
        let reach = settings.allowed_hosts.reach(is_free_form);
        let host = origin(base).unwrap_or_default();
        let secret = secret(access, &host, &settings).map_err(problem)?;
        Ok(Right { provider, host, secret, reach })
    }

    fn lane(&self, order: &Order) -> Result<Arc<Lane>> {
        let embedder = &order.embedder;
        let Right { provider, host, secret, reach } = self.right(embedder, &order.access)?;
        let key = (embedder.clone(), order.kind, secret.clone(), reach);
        if let Some(lane) = lock(&self.lanes).get(&key) {
            return Ok(Lane::take_up(lane));
        }
        let digest = secret.as_ref().map(|secret| *blake3::hash(secret.expose().as_bytes()).as_bytes());
        let account = (host.clone(), digest);
        let limits = self.limits(embedder, &account);
        let budget = Arc::clone(lock(&self.budgets).entry(account).or_default());
        let breaker =
            Arc::clone(lock(&self.breakers).entry(endpoint(embedder, provider, &host)).or_default());
        let line = Line {
            embedder: embedder.clone(),
            kind: order.kind,
            provider,
            secret,
            limits,
            budget,
            breaker,
            transport: self.transport(reach).map_err(|problem| Error::Provider {
                embedder: embedder.id.clone(),
                problem,
                passing: false,
            })?,
        };
        // Another task may have been quicker: its lane is the one that is served.
        Ok(Lane::take_up(lock(&self.lanes).entry(key).or_insert_with(|| Lane::open(line))))
    }

    /// Forgets lanes that were last used so long ago, their keys with them; and what lanes shared, when no lane has it
    /// any more and it says nothing.
    pub fn forget_idle(&self, idle: Duration) {
        // New handles are given out under this lock only.
        lock(&self.lanes).retain(|_, lane| !Lane::close_if_idle(lane, idle));
        lock(&self.limits).retain(|_, limits| Arc::strong_count(limits) > 1 || limits.held().is_some());
        lock(&self.budgets).retain(|_, budget| Arc::strong_count(budget) > 1 || budget.is_needed());
        let now = Instant::now();
        lock(&self.breakers).retain(|_, breaker| Arc::strong_count(breaker) > 1 || breaker.is_open(now));
    }

    /// Lanes that are remembered.
    pub fn lanes(&self) -> usize {
        lock(&self.lanes).len()
    }

    fn limits(&self, embedder: &Embedder, account: &Account) -> Arc<Limits> {
        let remote = &embedder.config.remote;
        let key = (account.clone(), remote.rpm, remote.tpm, remote.max_concurrency);
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
        (reference, _) => reference.resolve(&settings.secrets).map(Some).map_err(|e| format!("secret: {e}")),
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
