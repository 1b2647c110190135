//! What a question by words reads: statistics, pages of words, pending chunks and ids of chunks. Everything
//! must run as the owner, concerns one build, and is limited to tenants that the caller may read.

use super::IDS_PER_PART;
use super::segments::ids_of;
use crate::pg::role::as_owner;
use crate::pg::setting;
use crate::pg::spi::{self, Arg, Row};
use crate::sql::{BY_INDEX, BY_LOOKUPS};
use kb_search::bm25::Totals;
use kb_types::error::{Error, Result};
use std::collections::BTreeMap;
use uuid::Uuid;

/// The tenants whose chunks in a knowledge base the caller may read, by the policies of kb.chunks.
pub fn readable_tenants(kb_no: i64) -> Result<Vec<String>> {
    spi::read(
        "SELECT pg_catalog.unnest(kb.visible_tenants())
         UNION SELECT s.owner_id FROM kb.shares s WHERE s.kb_no = $1 AND s.tenant_id = kb.current_tenant()",
        &[Arg::Long(kb_no)],
        Row::only,
    )
}

/// A segment with its contribution to the statistics.
pub struct SegmentStatistics {
    pub segment_no: i64,
    pub totals: Totals,
}

pub fn segments(build_no: i64, tenants: &[String]) -> Result<Vec<SegmentStatistics>> {
    let sql = "SELECT segment_no, (came - went)::bigint AS chunks, sum_length FROM kb.bm25_segments
               WHERE build_no = $1 AND tenant_id = ANY ($2) ORDER BY segment_no";
    let row = |row: &Row| {
        let totals = Totals { chunks: row.get("chunks")?, sum_length: row.get("sum_length")? };
        Ok(SegmentStatistics { segment_no: row.get("segment_no")?, totals })
    };
    as_owner(|| spi::read(sql, &[Arg::Long(build_no), Arg::Texts(tenants)], row))
}

/// A chunk that waits to be folded.
pub enum Pending {
    /// It was added, exists, and has these words.
    Came(Uuid, Vec<u8>),
    /// It was deleted, and had these words. A segment has it, or it was both added and deleted while it
    /// waited.
    Went(Uuid, Vec<u8>),
    /// It was added, and no longer exists; it is also among those that were deleted.
    CameAndWent(Uuid),
}

pub fn pending(build_no: i64, tenants: &[String]) -> Result<Vec<Pending>> {
    let sql = "SELECT u.chunk_id, p.terms AS went, c.terms AS here FROM kb.bm25_pending p
               CROSS JOIN LATERAL pg_catalog.unnest(p.chunk_ids) WITH ORDINALITY AS u (chunk_id, n)
               LEFT JOIN kb.chunks c ON p.terms IS NULL AND c.build_no = p.build_no AND c.chunk_id = u.chunk_id
               WHERE p.build_no = $1 AND p.tenant_id = ANY ($2) ORDER BY p.pending_no, u.n";
    let row = |row: &Row| {
        let (chunk_id, went, here) = (row.get("chunk_id")?, row.get("went")?, row.get("here")?);
        Ok(match (went, here) {
            (Some(words), _) => Pending::Went(chunk_id, words),
            (None, Some(words)) => Pending::Came(chunk_id, words),
            (None, None) => Pending::CameAndWent(chunk_id),
        })
    };
    // There are a few hundred at most. With a hash join, each question would read all chunks of the build.
    let arguments = [Arg::Long(build_no), Arg::Texts(tenants)];
    as_owner(|| setting::with(BY_LOOKUPS, || spi::read(sql, &arguments, row)))
}

/// The pages in which segments have terms: for each segment, and in it for each term, in the form that
/// bm25::find takes.
pub fn pages(segment_nos: &[i64], terms: &[Vec<u8>]) -> Result<Vec<Vec<Vec<Vec<u8>>>>> {
    let mut found = vec![vec![Vec::new(); terms.len()]; segment_nos.len()];
    let sql = "SELECT s.n::integer AS segment, t.n::integer AS term, p.is_own, p.page
               FROM pg_catalog.unnest($1::bigint[]) WITH ORDINALITY AS s (segment_no, n),
                    pg_catalog.unnest($2::bytea[]) WITH ORDINALITY AS t (term, n),
                    LATERAL (
                        (SELECT true AS is_own, o.page_no, o.page FROM kb.bm25_terms o
                         WHERE o.segment_no = s.segment_no AND o.first_term = t.term)
                        UNION ALL
                        (SELECT false, b.page_no, b.page FROM kb.bm25_terms b
                         WHERE b.segment_no = s.segment_no AND b.first_term < t.term
                         ORDER BY b.first_term DESC, b.page_no DESC LIMIT 1)) p
               ORDER BY s.n, t.n, p.is_own DESC, p.page_no";
    let arguments = [Arg::Longs(segment_nos), Arg::BytesArray(terms)];
    let place = |row: &Row| {
        let (segment, term) = (row.get::<usize>("segment")? - 1, row.get::<usize>("term")? - 1);
        let pages: &mut Vec<Vec<u8>> = &mut found[segment][term];
        // The preceding page is needed only if no page begins with the term.
        if row.get::<bool>("is_own")? || pages.is_empty() {
            pages.push(row.get("page")?);
        }
        Ok(())
    };
    as_owner(|| by_index(|| spi::read(sql, &arguments, place)))?;
    Ok(found)
}

/// The ids of chunks, in their order. Each is given by the number of its segment and its number in the
/// segment.
pub fn chunk_ids(chunks: &[(i64, u32)]) -> Result<Vec<Uuid>> {
    let mut parts: BTreeMap<(i64, i32), Vec<u8>> = BTreeMap::new();
    let part = |&(segment_no, number): &(i64, u32)| (segment_no, (number as usize / IDS_PER_PART) as i32);
    for chunk in chunks {
        parts.entry(part(chunk)).or_default();
    }
    let (segment_nos, numbers): (Vec<i64>, Vec<i32>) = parts.keys().copied().unzip();
    let sql = "SELECT c.segment_no, c.part, c.chunk_ids
               FROM unnest($1::bigint[], $2::integer[]) AS u (segment_no, part)
               JOIN kb.bm25_chunks c ON c.segment_no = u.segment_no AND c.part = u.part AND NOT c.is_gone";
    let arguments = [Arg::Longs(&segment_nos), Arg::Ints(&numbers)];
    let place = |row: &Row| {
        parts.insert((row.get("segment_no")?, row.get("part")?), row.get("chunk_ids")?);
        Ok(())
    };
    as_owner(|| by_index(|| spi::read(sql, &arguments, place)))?;
    let id = |chunk: &(i64, u32)| {
        let ids = parts.get(&part(chunk)).map(Vec::as_slice).unwrap_or_default();
        let missing = || Error::Internal(format!("segment {} has no chunk {}", chunk.0, chunk.1));
        ids_of(ids).nth(chunk.1 as usize % IDS_PER_PART).ok_or_else(missing)
    };
    chunks.iter().map(id).collect()
}

/// The words of chunks.
pub fn terms(build_no: i64, chunk_ids: &[Uuid]) -> Result<Vec<(Uuid, Vec<u8>)>> {
    let sql = "SELECT c.chunk_id, c.terms FROM kb.chunks c WHERE c.build_no = $1 AND c.chunk_id = ANY ($2)";
    let arguments = [Arg::Long(build_no), Arg::Uuids(chunk_ids)];
    as_owner(|| spi::read(sql, &arguments, |row| Ok((row.get("chunk_id")?, row.get("terms")?))))
}

fn by_index<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    setting::with(BY_INDEX, work)
}
