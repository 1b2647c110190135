//! kb.secrets, of the few who may touch it: keys go in and to the gateway, never out to a query.

use crate::error::Result;
use crate::gateway::secret::Secret;
use crate::pg::spi::{self, Arg};

/// As the owner.
pub fn set(name: &str, value: &Secret) -> Result<()> {
    spi::execute(
        "INSERT INTO kb.secrets AS s (name, value) VALUES ($1, $2)
         ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value, updated_at = now()",
        &[Arg::Text(name), Arg::Text(value.expose())],
    )?;
    Ok(())
}

/// As the owner; whether it was there.
pub fn delete(name: &str) -> Result<bool> {
    Ok(spi::execute("DELETE FROM kb.secrets WHERE name = $1", &[Arg::Text(name)])? == 1)
}

/// As the owner. Works on a standby.
pub fn get(name: &str) -> Result<Option<Secret>> {
    let value = spi::read_one("SELECT value FROM kb.secrets WHERE name = $1", &[Arg::Text(name)], |row| {
        row.get::<String>(0)
    })?;
    Ok(value.map(|value| Secret::new(&value)))
}
