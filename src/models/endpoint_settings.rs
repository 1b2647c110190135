//! What embedders, rerankers and chat models have in common in their settings: an address, a secret, keys of a config.

use crate::settings;
use kb_gateway::endpoint::secret_reference::Reference;
use kb_types::error::Allowing;
use serde_json::{Map, Value};

/// Keys of `config` that everything has that is reached over HTTP.
pub const ENDPOINT_KEYS: [&str; 10] = [
    "timeout_ms",
    "retry",
    "rpm",
    "tpm",
    "daily_token_budget",
    "tenant_share",
    "price_per_million_tokens",
    "max_concurrency",
    "path",
    "headers",
];

/// Where something is, and its key.
pub struct Address<'a> {
    pub provider: &'a str,
    /// As asked for.
    pub base_url: Option<&'a str>,
    pub secret: Option<&'a str>,
    /// Where the provider is if base_url is not given.
    pub own: Option<&'a str>,
    pub is_free_form: bool,
    /// The provider's own address answers nobody without a key.
    pub needs_secret: bool,
}

impl Address<'_> {
    /// Adds what is wrong to `problems`. Returns the setting that would allow what was refused.
    pub fn check(&self, problems: &mut Vec<String>) -> Option<Allowing> {
        let mut setting = None;
        match self.base_url.or(self.own) {
            // Whoever needs one checks that it is given.
            None => {}
            Some(base) => match settings::allowed_hosts().check(base, self.is_free_form) {
                Err(problem) => {
                    setting = problem.can_be_allowed().then_some(Allowing::AllowedHosts);
                    problems.push(format!("base_url: {problem}"));
                }
                Ok(url) if url.query().is_some() || url.fragment().is_some() => {
                    problems.push(
                        "base_url: it must have no ? and no #; what is no credential can go into config.path"
                            .into(),
                    );
                }
                Ok(_) => {}
            },
        }
        match self.secret.map(Reference::parse) {
            Some(Err(problem)) => problems.push(format!("secret: {problem}")),
            Some(Ok(reference)) => {
                let sources = settings::secret_sources();
                if let Reference::Env(variable) = &reference
                    && let Err(problem) = sources.variables.check(variable)
                {
                    setting = Some(Allowing::SecretEnv);
                    problems.push(format!("secret: {problem}"));
                } else if let Err(problem) = reference.check_use(&sources) {
                    problems.push(format!("secret: {problem}"));
                }
            }
            None if self.needs_secret && self.base_url.is_none() => problems.push(format!(
                "secret: provider {} answers nobody without a key; give env:NAME, file:NAME or kb:NAME",
                self.provider
            )),
            _ => {}
        }
        setting
    }
}

/// Adds a problem for an address or a secret that a provider in this server has no use for.
pub fn refuse_address(
    provider: &str,
    base_url: Option<&str>,
    secret: Option<&str>,
    problems: &mut Vec<String>,
) {
    for (name, value) in [("base_url", base_url), ("secret", secret)] {
        if value.is_some() {
            problems.push(format!("{name}: provider {provider} takes none"));
        }
    }
}

/// A configuration reduced to its known keys, and the names of the others. A value that is not an object is unchanged.
pub fn with_keys(config: &Value, known: &[&str]) -> (Value, Vec<String>) {
    let Value::Object(map) = config else { return (config.clone(), Vec::new()) };
    let (read, unknown): (Map<_, _>, Map<_, _>) =
        map.clone().into_iter().partition(|(key, _)| known.contains(&key.as_str()));
    (Value::Object(read), unknown.into_iter().map(|(key, _)| key).collect())
}
