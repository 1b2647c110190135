//! kb.set_secret.

use crate::models::sql::secrets;
use crate::pg::role::as_owner;
use crate::pg::{report, setting};
use crate::settings;
use kb_gateway::endpoint::secret::Secret;
use kb_gateway::endpoint::secret_reference::Reference;
use kb_types::error::{Error, Result};

/// Characters of a key at most.
const MAX_KEY: usize = 64 * 1024;

/// Stores a key, sealed where the server has a sealing key.
pub fn set_secret(name: &str, value: &str) -> Result<()> {
    check_name(name)?;
    let argument = |problem: &str| Err(Error::Argument { argument: "value", problem: problem.into() });
    let secret = Secret::new(value);
    if secret.expose().is_empty() {
        return argument("it is empty");
    }
    if secret.expose().len() > MAX_KEY || secret.expose().chars().any(char::is_control) {
        return argument("it is longer than 64 KB or holds control characters");
    }
    let kept = settings::sealing_keys().keep(name, &secret).map_err(|problem| Error::State {
        problem: format!("secret \"{name}\" is not stored: {problem}"),
        hint: "A superuser sets kb.secret_key in the server's configuration file.".into(),
    })?;
    as_owner(|| secrets::set(name, &kept))?;
    if setting::statements_are_logged() {
        report::warning(
            "statements are being logged on this server (log_statement, log_min_duration_statement) or a sample of \
             them (log_min_duration_sample, log_transaction_sample_rate): the key may be in its log",
        );
    }
    Ok(())
}

/// A name that an embedder can refer to.
pub fn check_name(name: &str) -> Result<()> {
    match Reference::parse(&format!("kb:{name}")) {
        Ok(_) => Ok(()),
        Err(problem) => Err(Error::Argument { argument: "name", problem: problem.into() }),
    }
}
