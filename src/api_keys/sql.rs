//! kb.api_keys. Every statement runs as the owner.

use crate::pg::row::from_row;
use crate::pg::spi::{self, Arg, FromRow};
use kb_types::error::Result;
use uuid::Uuid;

from_row! {
    /// As whom the holder of a key acts.
    pub struct Identity {
        pub role_name: String,
        pub tenant_id: String,
        pub scopes: Vec<String>,
        pub requests_per_minute: Option<i32>,
    }
}

pub struct NewKey<'a> {
    pub name: &'a str,
    pub identity: &'a Identity,
    /// Microseconds since 2000; None: never.
    pub expires_at: Option<i64>,
    pub created_by: &'a str,
}

/// Random numbers that nobody can foretell.
pub fn random() -> Result<[Uuid; 3]> {
    let one = || spi::write_value("SELECT pg_catalog.gen_random_uuid()", &[]);
    Ok([one()?, one()?, one()?])
}

pub fn insert(key_id: &str, hash: &[u8], new: &NewKey) -> Result<()> {
    let Identity { role_name, tenant_id, scopes, requests_per_minute } = new.identity;
    spi::execute(
        "INSERT INTO kb.api_keys (key_id, name, hash, role_name, tenant_id, scopes, requests_per_minute, expires_at, created_by)
         VALUES ($1, $2, $3, $4::name, $5, $6, $7::integer,
                 TIMESTAMPTZ '2000-01-01 00:00:00+00' + $8::double precision * INTERVAL '1 microsecond', $9::name)",
        &[
            Arg::Text(key_id),
            Arg::Text(new.name),
            Arg::Bytes(hash),
            Arg::Text(role_name),
            Arg::Text(tenant_id),
            Arg::Texts(scopes),
            Arg::LongOrNull(requests_per_minute.map(i64::from)),
            Arg::LongOrNull(new.expires_at),
            Arg::Text(new.created_by),
        ],
    )?;
    Ok(())
}

/// The identity of a key that has not expired.
pub fn find(key_id: &str, hash: &[u8]) -> Result<Option<Identity>> {
    spi::read_one(
        "SELECT k.role_name::text AS role_name, k.tenant_id, k.scopes, k.requests_per_minute FROM kb.api_keys k
         WHERE k.key_id = $1 AND k.hash = $2
           AND (k.expires_at IS NULL OR k.expires_at > pg_catalog.clock_timestamp())",
        &[Arg::Text(key_id), Arg::Bytes(hash)],
        Identity::from_row,
    )
}

/// Notes that a key was used, once a minute. Does not wait for another request that notes it.
pub fn used(key_id: &str) -> Result<()> {
    let is_due: Option<bool> = spi::read_one(
        "SELECT k.last_used_at IS NULL OR k.last_used_at < pg_catalog.now() - INTERVAL '1 minute' AS is_due
         FROM kb.api_keys k WHERE k.key_id = $1 AND NOT pg_catalog.pg_is_in_recovery()
           AND NOT pg_catalog.current_setting('transaction_read_only')::boolean",
        &[Arg::Text(key_id)],
        |row| row.get("is_due"),
    )?;
    if is_due == Some(true) {
        spi::execute(
            "UPDATE kb.api_keys SET last_used_at = pg_catalog.now()
             WHERE key_id = (SELECT k.key_id FROM kb.api_keys k WHERE k.key_id = $1 FOR NO KEY UPDATE SKIP LOCKED)",
            &[Arg::Text(key_id)],
        )?;
    }
    Ok(())
}

/// Deletes a key, one of a tenant in the list if there is one. Returns whether it was there.
pub fn delete(key_id: &str, tenants: Option<&[String]>) -> Result<bool> {
    let deleted = spi::execute(
        "DELETE FROM kb.api_keys WHERE key_id = $1 AND (NOT $2 OR tenant_id = ANY ($3))",
        &[Arg::Text(key_id), Arg::Bool(tenants.is_some()), Arg::Texts(tenants.unwrap_or_default())],
    )?;
    Ok(deleted == 1)
}

/// Makes the session act as this identity until its transaction ends. As the caller, who must be allowed to
/// SET ROLE.
pub fn assume(identity: &Identity) -> Result<()> {
    let _: String = spi::write_value(
        "SELECT pg_catalog.set_config('kb.tenant', $1, true) || pg_catalog.set_config('kb.scopes', $2, true)
             || pg_catalog.set_config('role', $3, true)",
        &[
            Arg::Text(&identity.tenant_id),
            Arg::Text(&identity.scopes.join(" ")),
            Arg::Text(&identity.role_name),
        ],
    )?;
    Ok(())
}
