//! The right to call an endpoint: its key, the host that the key is bound to, and the allowed addresses.

use super::budget::Spent;
use super::egress::{AllowedHosts, Reach, origin};
use super::secret::Secret;
use super::secret_reference::{Reference, Sources};
use serde::{Deserialize, Serialize};

/// The access that a client sends with a request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Access {
    /// The reference to the endpoint's secret.
    pub reference: Option<Reference>,
    /// The key itself, if it is stored in the database.
    pub stored: Option<Secret>,
    /// The scheme, host and port to which the secret is bound.
    pub host: Option<String>,
    pub spent: Spent,
}

/// The settings of the server for outbound connections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressSettings {
    pub allowed_hosts: AllowedHosts,
    pub secrets: Sources,
}

/// An access that has been checked.
#[derive(Debug)]
pub struct Authorization {
    /// Scheme, host and port.
    pub host: String,
    pub secret: Option<Secret>,
    pub reach: Reach,
}

impl Authorization {
    /// Checks everything that does not need a connection. For `is_free_form` see [`AllowedHosts::check`].
    pub fn check(
        settings: &EgressSettings,
        base_url: &str,
        is_free_form: bool,
        access: &Access,
    ) -> Result<Authorization, String> {
        settings.allowed_hosts.check(base_url, is_free_form).map_err(|e| format!("base_url: {e}"))?;
        let reach = settings.allowed_hosts.reach(is_free_form);
        let host = origin(base_url).unwrap_or_default();
        let secret = key(access, &host, &settings.secrets)?;
        Ok(Authorization { host, secret, reach })
    }

    /// A digest of the key and its destination, so that an answer obtained with one right is not given to a
    /// client with another.
    pub fn digest(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.host.as_bytes());
        hasher.update(&[0, u8::from(self.secret.is_some())]);
        hasher.update(self.secret.as_ref().map(Secret::expose).unwrap_or_default().as_bytes());
        *hasher.finalize().as_bytes()
    }
}

/// The key, which is only sent to the host that it is bound to.
fn key(access: &Access, host: &str, sources: &Sources) -> Result<Option<Secret>, String> {
    let Some(reference) = &access.reference else { return Ok(None) };
    if access.host.as_deref() != Some(host) {
        return Err(format!("its secret is not bound to {host}: give it again (secret => …)"));
    }
    match (reference, &access.stored) {
        (Reference::Stored(_), Some(secret)) => Ok(Some(secret.clone())),
        (Reference::Stored(name), None) => Err(format!("secret kb:{name} does not exist; see kb.set_secret")),
        (reference, _) => reference.resolve(sources).map(Some).map_err(|e| format!("secret: {e}")),
    }
}
