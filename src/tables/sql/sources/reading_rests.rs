//! kb.reading_rests: the owners whose tables rest, for the next worker. For the worker.

use crate::pg::spi::{self, Arg};
use kb_types::error::Result;
use std::time::Duration;

/// Longer than any rest, in case a clock was set.
const MOST: f64 = 3600.0;

/// Records how long the tables of a role rest for a tenant.
pub fn put(role_name: &str, tenant_id: &str, rest: Duration) -> Result<()> {
    spi::execute(
        "INSERT INTO kb.reading_rests (role_name, tenant_id, rests_until)
         SELECT $1::name, $2, pg_catalog.clock_timestamp() + $3 * '1 second'::interval
         ON CONFLICT (role_name, tenant_id) DO UPDATE SET rests_until = EXCLUDED.rests_until",
        &[Arg::Text(role_name), Arg::Text(tenant_id), Arg::Double(rest.as_secs_f64())],
    )?;
    spi::execute("DELETE FROM kb.reading_rests WHERE rests_until < pg_catalog.clock_timestamp()", &[])?;
    Ok(())
}

/// The roles and tenants whose tables still rest, and for how long.
pub fn all() -> Result<Vec<(String, String, Duration)>> {
    spi::write(
        "SELECT role_name::text AS role_name, tenant_id,
             pg_catalog.date_part('epoch', rests_until - pg_catalog.clock_timestamp())::double precision AS seconds
         FROM kb.reading_rests WHERE rests_until > pg_catalog.clock_timestamp()",
        &[],
        |row| {
            let rest = Duration::from_secs_f64(row.get::<f64>("seconds")?.clamp(0.0, MOST));
            Ok((row.get("role_name")?, row.get("tenant_id")?, rest))
        },
    )
}
