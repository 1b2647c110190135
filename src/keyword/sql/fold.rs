//! Folding: pending insertions and deletions of chunks become a segment.

use super::segments::{Owner, Writer};
use crate::pg::row::from_row;
use crate::pg::setting;
use crate::pg::spi::{self, Arg, FromRow, Row};
use crate::sql::BY_INDEX_UNPLANNED;
use foldhash::HashMap;
use kb_search::bm25::Builder;
use kb_types::error::Result;
use uuid::Uuid;

/// The approximate number of chunks that are folded at once. With the rows that record the deletion of the
/// same chunks it is up to twice as many.
const AT_ONCE: usize = 20_000;

from_row! {
    /// A row that was taken out of kb.bm25_pending.
    struct Taken {
        chunk_id: Uuid,
        /// The words of a chunk that was deleted.
        went: Option<Vec<u8>>,
        /// The words of a chunk that was added and still exists.
        came: Option<Vec<u8>>,
    }
}

/// The builds and tenants that have pending rows with numbers above `after`, each with the number of these
/// rows and the last number.
pub fn waiting(after: i64) -> Result<Vec<(i64, String, i64, i64)>> {
    spi::write(
        "SELECT build_no, tenant_id, pg_catalog.sum(pg_catalog.cardinality(chunk_ids)) AS chunks, max(pending_no) AS last
         FROM kb.bm25_pending WHERE pending_no > $1 GROUP BY build_no, tenant_id",
        &[Arg::Long(after)],
        |row| Ok((row.get("build_no")?, row.get("tenant_id")?, row.get("chunks")?, row.get("last")?)),
    )
}

/// Deletes the pending rows of builds that no longer exist. A drop of a knowledge base does not do this
/// itself: the worker may be folding the rows, and the drop must not wait for it.
pub fn delete_of_gone() -> Result<()> {
    let sql = "DELETE FROM kb.bm25_pending p
               WHERE NOT EXISTS (SELECT FROM kb.builds b WHERE b.build_no = p.build_no)";
    spi::execute(sql, &[])?;
    Ok(())
}

/// The owner of the chunks of a build and tenant. Returns None if the build is gone or old, after deleting
/// its rows.
pub fn owner(build_no: i64, tenant_id: &str) -> Result<Option<Owner>> {
    let kb_no = spi::write_one(
        "SELECT kb_no FROM kb.builds WHERE build_no = $1 AND state <> 'old'",
        &[Arg::Long(build_no)],
        Row::only::<i64>,
    )?;
    if kb_no.is_none() {
        let arguments = [Arg::Long(build_no)];
        spi::execute("DELETE FROM kb.bm25_pending WHERE build_no = $1", &arguments)?;
    }
    Ok(kb_no.map(|kb_no| Owner { build_no, kb_no, tenant_id: tenant_id.into() }))
}

/// Folds the oldest pending rows into a segment. Returns whether others are left.
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

/// Takes rows out, the oldest first, with the words of the chunks that exist. If the last row of a chunk says
/// that it was added but the chunk does not exist, a later row records its deletion, and that row is taken,
/// too.
fn take(owner: &Owner) -> Result<Vec<Taken>> {
    let (build_no, tenant_id) = (Arg::Long(owner.build_no), Arg::Text(&owner.tenant_id));
    let last = format!(
        "SELECT max(c.pending_no) FROM (
             SELECT w.pending_no, pg_catalog.sum(w.chunks) OVER (ORDER BY w.pending_no) - w.chunks AS chunks_before
             FROM (SELECT pending_no, pg_catalog.cardinality(chunk_ids) AS chunks FROM kb.bm25_pending
                   WHERE build_no = $1 AND tenant_id = $2 ORDER BY pending_no LIMIT {AT_ONCE}) w) c
         WHERE c.chunks_before < {AT_ONCE}"
    );
    let last = spi::write_one(&last, &[build_no, tenant_id], Row::only::<Option<i64>>)?.flatten();
    let Some(last) = last else { return Ok(Vec::new()) };
    // Chunks are looked up one by one, whatever the statistics say. If these are older than the build, the
    // build seems to have no chunks, and a join would read all chunks for each row.
    let sql = "WITH taken AS (
             DELETE FROM kb.bm25_pending p WHERE p.build_no = $1 AND p.tenant_id = $2 AND p.pending_no <= $3
             RETURNING p.pending_no, p.chunk_ids, p.terms)
         SELECT u.chunk_id, t.terms AS went, CASE WHEN t.terms IS NULL THEN (
             SELECT c.terms FROM kb.chunks c WHERE c.build_no = $1 AND c.chunk_id = u.chunk_id) END AS came
         FROM taken t CROSS JOIN LATERAL pg_catalog.unnest(t.chunk_ids) WITH ORDINALITY AS u (chunk_id, n)
         ORDER BY t.pending_no, u.n";
    let arguments = [build_no, tenant_id, Arg::Long(last)];
    let mut taken = setting::with(BY_INDEX_UNPLANNED, || spi::write(sql, &arguments, Taken::from_row))?;
    let gone = gone(&taken);
    if !gone.is_empty() {
        // IS TRUE makes it a condition of its own, which is hashed, whatever join plans are enabled.
        let went = spi::write(
            "DELETE FROM kb.bm25_pending p WHERE p.pending_no = ANY (ARRAY(
                 SELECT min(w.pending_no) FROM kb.bm25_pending w
                 WHERE w.build_no = $1 AND w.tenant_id = $2 AND w.pending_no > $3 AND w.terms IS NOT NULL
                   AND (w.chunk_ids[1] IN (SELECT pg_catalog.unnest($4::uuid[]))) IS TRUE
                 GROUP BY w.chunk_ids[1]))
             RETURNING p.chunk_ids[1] AS chunk_id, p.terms AS went, NULL::bytea AS came",
            &[build_no, tenant_id, Arg::Long(last), Arg::Uuids(&gone)],
            Taken::from_row,
        )?;
        taken.extend(went);
    }
    Ok(taken)
}

/// The chunks whose last row says that they were added, and which do not exist.
fn gone(taken: &[Taken]) -> Vec<Uuid> {
    let last: HashMap<Uuid, &Taken> = taken.iter().map(|taken| (taken.chunk_id, taken)).collect();
    let is_gone = |taken: &&&Taken| taken.went.is_none() && taken.came.is_none();
    last.values().filter(is_gone).map(|taken| taken.chunk_id).collect()
}

/// A chunk with its words.
type ChunkWords = (Uuid, Vec<u8>);

/// The net effect, if chunks were added and deleted, or deleted and added again with the same text, and so
/// with the same id: the added chunks, in order, and the deleted chunks that older segments have.
fn net(taken: Vec<Taken>) -> (Vec<ChunkWords>, Vec<ChunkWords>) {
    let mut sums: HashMap<Uuid, i64> = HashMap::default();
    for row in &taken {
        *sums.entry(row.chunk_id).or_default() += if row.went.is_some() { -1 } else { 1 };
    }
    let (mut came, mut went) = (Vec::new(), Vec::new());
    for Taken { chunk_id, went: gone, came: here } in taken {
        let sum = sums.get(&chunk_id).copied().unwrap_or_default();
        // Each chunk counts once.
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
