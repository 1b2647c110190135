//! kb.set_secret and kb.drop_secret: keys that are stored in the database under a name.

use super::sql::secrets;
use crate::pg::role::as_owner;
use crate::pg::{report, setting};
use crate::settings;
use kb_gateway::endpoint::secret::Secret;
use kb_gateway::endpoint::secret_reference::Reference;
use kb_types::error::{Error, ObjectKind, Result};

/// The most bytes of a key.
const MAX_KEY: usize = 64 * 1024;

/// Stores a key. It is sealed if the server has a sealing key.
pub fn set(name: &str, value: &str) -> Result<()> {
    check_name(name)?;
    let argument = |problem: &str| Err(Error::Argument { argument: "value", problem: problem.into() });
    let secret = Secret::new(value);
    if secret.expose().is_empty() {
        return argument("it is empty");
    }
    if secret.expose().len() > MAX_KEY || secret.expose().chars().any(char::is_control) {
        return argument("it is longer than 64 KB or contains control characters");
    }
    let kept = settings::sealing_keys().keep(name, &secret).map_err(|problem| Error::State {
        problem: format!("secret \"{name}\" is not stored: {problem}"),
        hint: "A superuser can correct kb.secret_key in the server's configuration file.".into(),
    })?;
    as_owner(|| secrets::set(name, &kept))?;
    if setting::statements_are_logged() {
        report::warning(
            "this server logs statements (log_statement, log_min_duration_statement) or a sample of them \
             (log_min_duration_sample, log_transaction_sample_rate), so its log may contain the key",
        );
    }
    Ok(())
}

pub fn drop(name: &str) -> Result<()> {
    check_name(name)?;
    if as_owner(|| secrets::delete(name))? {
        return Ok(());
    }
    Err(Error::NotFound { what: ObjectKind::Secret, id: name.into() })
}

/// A service must be able to refer to the name.
fn check_name(name: &str) -> Result<()> {
    match Reference::parse(&format!("kb:{name}")) {
        Ok(_) => Ok(()),
        Err(problem) => Err(Error::Argument { argument: "name", problem: problem.into() }),
    }
}
