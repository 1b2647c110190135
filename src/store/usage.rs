//! kb.usage: what remote embedders were asked.

use crate::error::Result;
use crate::gateway::protocol::Usage;
use crate::pg::spi::{self, Arg};

/// Adds to today's figures; `price_micros` is millionths of the currency unit for a million tokens. As the
/// worker.
pub fn add(embedder: &str, kb_no: i64, usage: &Usage, price_micros: Option<u64>) -> Result<()> {
    let long = |n: u64| Arg::Long(i64::try_from(n).unwrap_or(i64::MAX));
    spi::execute(
        "INSERT INTO kb.usage AS u (embedder, kb_no, kb_id, tenant_id, day, requests, texts, tokens, retries, cost)
         SELECT $1, $2, k.id, coalesce(k.tenant_id, ''), (now() AT TIME ZONE 'UTC')::date, $3, $4, $5, $6,
                $5::numeric * $7 / 1000000000000
         FROM (SELECT) one LEFT JOIN kb.knowledge_bases k ON k.kb_no = $2
         ON CONFLICT (embedder, kb_no, day) DO UPDATE SET requests = u.requests + EXCLUDED.requests,
             texts = u.texts + EXCLUDED.texts, tokens = u.tokens + EXCLUDED.tokens,
             retries = u.retries + EXCLUDED.retries, cost = u.cost + EXCLUDED.cost",
        &[
            Arg::Text(embedder),
            Arg::Long(kb_no),
            long(usage.requests),
            long(usage.texts),
            long(usage.tokens),
            long(usage.retries),
            long(price_micros.unwrap_or(0)),
        ],
    )?;
    Ok(())
}

/// Tokens of an embedder today, of all tenants. As the owner. Works on a standby.
pub fn tokens_today(embedder: &str) -> Result<u64> {
    let tokens = spi::read_one(
        "SELECT coalesce(sum(tokens), 0)::bigint FROM kb.usage
         WHERE embedder = $1 AND day = (now() AT TIME ZONE 'UTC')::date",
        &[Arg::Text(embedder)],
        |row| row.get::<i64>(0),
    )?;
    Ok(tokens.and_then(|n| u64::try_from(n).ok()).unwrap_or(0))
}
