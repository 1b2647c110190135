//! kb.secrets: keys go in, and out to the gateway only, never to a query.

use crate::pg::spi::{self, Arg};
use kb_gateway::endpoint::seal::Kept;
use kb_gateway::endpoint::secret::Secret;
use kb_types::error::Result;

/// As the owner.
pub fn set(name: &str, kept: &Kept) -> Result<()> {
    let (value, is_sealed) = match kept {
        Kept::Plain(secret) => (secret.expose(), false),
        Kept::Sealed(sealed) => (sealed.as_str(), true),
    };
    spi::execute(
        "INSERT INTO kb.secrets AS s (name, value, sealed) VALUES ($1, $2, $3)
         ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value, sealed = EXCLUDED.sealed, updated_at = now()",
        &[Arg::Text(name), Arg::Text(value), Arg::Bool(is_sealed)],
    )?;
    Ok(())
}

/// As the owner; whether it was there.
pub fn delete(name: &str) -> Result<bool> {
    Ok(spi::execute("DELETE FROM kb.secrets WHERE name = $1", &[Arg::Text(name)])? == 1)
}

/// As the owner. Works on a standby.
pub fn get(name: &str) -> Result<Option<Kept>> {
    spi::read_one("SELECT value, sealed FROM kb.secrets WHERE name = $1", &[Arg::Text(name)], |row| {
        let value: String = row.get("value")?;
        Ok(if row.get::<bool>("sealed")? { Kept::Sealed(value) } else { Kept::Plain(Secret::new(&value)) })
    })
}
