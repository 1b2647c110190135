//! Folding: chunks that came and went become a segment.

use super::segments::{Owner, Writer};
use crate::bm25::Builder;
use crate::error::Result;
use crate::pg::spi::{self, Arg};
use std::collections::HashMap;
use uuid::Uuid;

/// Chunks that are folded at once, about; with those that say that the same ones went, up to twice as many.
const AT_ONCE: usize = 20_000;

/// A chunk of a row of kb.bm25_pending that was taken out.
struct Taken {
    chunk_id: Uuid,
    /// Of a chunk that went.
    went: Option<Vec<u8>>,
    /// Of a chunk that came and is there.
    came: Option<Vec<u8>>,
}

/// Chunks of builds and tenants that wait to be folded and have numbers above `after`: how many, and the last number.
pub fn waiting(after: i64) -> Result<Vec<(i64, String, i64, i64)>> {
    spi::write(
        "SELECT build_no, tenant_id, pg_catalog.sum(pg_catalog.cardinality(chunk_ids)), max(pending_no)
         FROM kb.bm25_pending WHERE pending_no > $1 GROUP BY build_no, tenant_id",
        &[Arg::Long(after)],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
    )
}

/// Deletes what waits of builds that are gone. Not with the knowledge base: the worker may just be folding it, and a
/// transaction that drops one waits for nobody.
pub fn delete_of_gone() -> Result<()> {
    let sql = "DELETE FROM kb.bm25_pending p
               WHERE NOT EXISTS (SELECT FROM kb.builds b WHERE b.build_no = p.build_no)";
    spi::execute(sql, &[])?;
    Ok(())
}

/// Whose chunks those of a build and tenant are; None: the build is gone or old, and so are its rows by this.
pub fn owner(build_no: i64, tenant_id: &str) -> Result<Option<Owner>> {
    let kb_no = spi::write_one(
        "SELECT kb_no FROM kb.builds WHERE build_no = $1 AND state <> 'old'",
        &[Arg::Long(build_no)],
        |row| row.get::<i64>(0),
    )?;
    if kb_no.is_none() {
        let arguments = [Arg::Long(build_no)];
        spi::execute("DELETE FROM kb.bm25_pending WHERE build_no = $1", &arguments)?;
    }
    Ok(kb_no.map(|kb_no| Owner { build_no, kb_no, tenant_id: tenant_id.into() }))
}

/// Folds chunks that wait into a segment, the oldest first; whether others are left.
pub fn fold(owner: &Owner) -> Result<bool> {
    let taken = take(owner)?;
    let is_full = taken.len() >= AT_ONCE;
    let (came, went) = net(taken);
    if came.is_empty() && went.is_empty() {
        return Ok(is_full);
    }
    let mut builder = Builder::new();
    for (_, terms) in &came {
        builder.add_chunk(terms)?;
    }
    for (_, terms) in &went {
        builder.add_tombstone(terms)?;
    }
    let ids = |of: &[(Uuid, Vec<u8>)]| of.iter().map(|(id, _)| *id).collect::<Vec<_>>();
    let mut writer = Writer::begin(owner, None, &ids(&came), &ids(&went))?;
    let totals = builder.finish(|page| writer.write(page))?;
    writer.finish(totals)?;
    Ok(is_full)
}

/// Takes chunks out, in the order of time, with the words of those that are there. One that came and is not there has a row
/// that says that it went, under the same snapshot; that one is taken, too.
fn take(owner: &Owner) -> Result<Vec<Taken>> {
    spi::write(
        &format!(
            "WITH waiting AS (
                 SELECT pending_no, chunk_ids FROM kb.bm25_pending WHERE build_no = $1 AND tenant_id = $2
                 ORDER BY pending_no LIMIT {AT_ONCE}),
             counted AS (
                 SELECT pending_no, chunk_ids, pg_catalog.sum(pg_catalog.cardinality(chunk_ids))
                     OVER (ORDER BY pending_no ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS chunks_before
                 FROM waiting),
             oldest AS MATERIALIZED (
                 SELECT pending_no, chunk_ids FROM counted WHERE coalesce(chunks_before, 0) < {AT_ONCE}),
             taken AS (
                 DELETE FROM kb.bm25_pending p WHERE p.build_no = $1 AND p.tenant_id = $2
                     AND (p.pending_no IN (SELECT o.pending_no FROM oldest o)
                          OR (p.terms IS NOT NULL
                              AND p.chunk_ids[1] IN (SELECT pg_catalog.unnest(o.chunk_ids) FROM oldest o)))
                 RETURNING p.pending_no, p.chunk_ids, p.terms)
             SELECT u.chunk_id, t.terms, c.terms FROM taken t
             CROSS JOIN LATERAL pg_catalog.unnest(t.chunk_ids) WITH ORDINALITY AS u (chunk_id, n)
             LEFT JOIN kb.chunks c ON t.terms IS NULL AND c.build_no = $1 AND c.chunk_id = u.chunk_id
             ORDER BY t.pending_no, u.n"
        ),
        &[Arg::Long(owner.build_no), Arg::Text(&owner.tenant_id)],
        |row| Ok(Taken { chunk_id: row.uuid(0)?, went: row.opt(1)?, came: row.opt(2)? }),
    )
}

/// A chunk with its words.
type Words = (Uuid, Vec<u8>);

/// What remains where a chunk came and went, or went and came again with the same text, which has the same id: chunks that
/// came, in their order, and chunks that older segments have and that went.
fn net(taken: Vec<Taken>) -> (Vec<Words>, Vec<Words>) {
    let mut sums: HashMap<Uuid, i64> = HashMap::new();
    for row in &taken {
        *sums.entry(row.chunk_id).or_default() += if row.went.is_some() { -1 } else { 1 };
    }
    let (mut came, mut went) = (Vec::new(), Vec::new());
    for Taken { chunk_id, went: gone, came: here } in taken {
        let sum = sums.get(&chunk_id).copied().unwrap_or_default();
        // Each chunk once.
        let (list, words) = if sum > 0 { (&mut came, here) } else { (&mut went, gone) };
        if sum != 0
            && let Some(words) = words
        {
            list.push((chunk_id, words));
            sums.remove(&chunk_id);
        }
    }
    (came, went)
}
