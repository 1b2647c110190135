//! kb.assume_api_key.

use super::key::Key;
use super::sql::{self, Identity};
use crate::pg::role::as_owner;
use kb_types::error::{Error, Result};

/// Makes the session act as the holder of a key until its transaction ends. Returns the key's id, and who
/// its holder is.
pub fn assume_api_key(text: &str) -> Result<(String, Identity)> {
    let key = Key::parse(text).ok_or(Error::ApiKey)?;
    let identity = as_owner(|| {
        let found = sql::find(&key.id, &key.hash())?;
        if found.is_some() {
            sql::used(&key.id)?;
        }
        Ok(found)
    })?;
    let identity = identity.ok_or(Error::ApiKey)?;
    sql::assume(&identity)?;
    Ok((key.id, identity))
}
