//! kb.usage: what remote endpoints were asked.

use crate::pg::spi::{self, Arg};
use kb_gateway::protocol::{Spent, Usage};
use kb_types::ServiceKind;
use kb_types::error::Result;

/// Adds to today's figures of an endpoint (an embedder's id, say) and the tenant who asked; `price_micros` is
/// millionths of the currency unit for a million tokens, so that twelve decimals are exact. As the worker.
pub fn add(
    kind: ServiceKind,
    endpoint: &str,
    kb_no: i64,
    tenant: &str,
    usage: &Usage,
    price_micros: Option<u64>,
) -> Result<()> {
    let long = |n: u64| Arg::Long(i64::try_from(n).unwrap_or(i64::MAX));
    spi::execute(
        "INSERT INTO kb.usage AS u
             (capability, endpoint, kb_no, kb_id, tenant_id, day, requests, texts, tokens, retries, cost)
         SELECT $9, $1, $2, k.id, $8, (now() AT TIME ZONE 'UTC')::date, $3, $4, $5, $6,
                pg_catalog.trim_scale(pg_catalog.round($5::numeric * $7 / 1000000000000, 12))
         FROM (SELECT) one LEFT JOIN kb.knowledge_bases k ON k.kb_no = $2
         ON CONFLICT (endpoint, capability, kb_no, tenant_id, day) DO UPDATE SET
             requests = u.requests + EXCLUDED.requests,
             texts = u.texts + EXCLUDED.texts, tokens = u.tokens + EXCLUDED.tokens,
             retries = u.retries + EXCLUDED.retries,
             cost = pg_catalog.trim_scale(coalesce(u.cost + EXCLUDED.cost, u.cost, EXCLUDED.cost))",
        &[
            Arg::Text(endpoint),
            Arg::Long(kb_no),
            long(usage.requests),
            long(usage.texts),
            long(usage.tokens),
            long(usage.retries),
            Arg::LongOrNull(price_micros.map(|price| i64::try_from(price).unwrap_or(i64::MAX))),
            Arg::Text(tenant),
            Arg::Text(kind.capability()),
        ],
    )?;
    Ok(())
}

/// Tokens that a tenant spent today (UTC) at all endpoints, with the day. As the owner. Works on a standby.
pub fn today_of_tenant(tenant: &str) -> Result<(u64, u64)> {
    let found = spi::read_one(
        "SELECT t.today - '1970-01-01'::date AS day, (
             SELECT coalesce(sum(u.tokens), 0)::bigint FROM kb.usage u WHERE u.tenant_id = $1 AND u.day = t.today) AS tokens
         FROM (SELECT (now() AT TIME ZONE 'UTC')::date AS today) t",
        &[Arg::Text(tenant)],
        |row| Ok((row.get::<i32>("day")?, row.get::<i64>("tokens")?)),
    )?;
    let (day, tokens) = found.unwrap_or_default();
    Ok((u64::try_from(day).unwrap_or(0), u64::try_from(tokens).unwrap_or(0)))
}

/// Tokens that an endpoint, and others with the same key, spent today (UTC): of all tenants, and of this one.
/// The budget bounds what a key may spend. As the owner. Works on a standby.
pub fn today(kind: ServiceKind, endpoint: &str, tenant: &str) -> Result<Spent> {
    let found = spi::read_one(
        "WITH endpoints AS (
             SELECT 'embed' AS capability, id, secret, secret_host FROM kb.embedders UNION ALL
             SELECT 'rerank', id, secret, secret_host FROM kb.rerankers UNION ALL
             SELECT 'chat', id, secret, secret_host FROM kb.llms UNION ALL
             SELECT 'extract', id, secret, secret_host FROM kb.extractors)
         SELECT t.today - '1970-01-01'::date AS day, u.tokens, u.by_tenant
         FROM (SELECT (now() AT TIME ZONE 'UTC')::date AS today) t
         CROSS JOIN LATERAL (
             SELECT coalesce(sum(tokens), 0)::bigint AS tokens,
                    coalesce(sum(tokens) FILTER (WHERE u.tenant_id = $2), 0)::bigint AS by_tenant
             FROM kb.usage u WHERE u.day = t.today AND (u.capability, u.endpoint) IN (
                 SELECT $3, $1 UNION
                 SELECT other.capability, other.id
                 FROM endpoints e JOIN endpoints other USING (secret, secret_host)
                 WHERE e.id = $1 AND e.capability = $3)) u",
        &[Arg::Text(endpoint), Arg::Text(tenant), Arg::Text(kind.capability())],
        |row| Ok((row.get::<i32>("day")?, row.get::<i64>("tokens")?, row.get::<i64>("by_tenant")?)),
    )?;
    let (day, tokens, by_tenant) = found.unwrap_or_default();
    let number = |n: i64| u64::try_from(n).unwrap_or(0);
    Ok(Spent {
        day: number(i64::from(day)),
        tokens: number(tokens),
        by_tenant: number(by_tenant),
        ..Spent::default()
    })
}
