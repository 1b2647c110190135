//! Merging: segments of one build and tenant become one, without chunks that are gone.

use super::segments::{self, Owner, Pages, Writer};
use crate::pg::row::from_row;
use crate::pg::spi::{self, Arg, FromRow};
use kb_search::bm25;
use kb_search::bm25::{DEAD, Source, Totals};
use kb_search::segment_merging;
use kb_types::error::Result;
use std::collections::{HashMap, HashSet};
use uuid::Uuid;

from_row! {
    struct MergedSegment {
        segment_no: i64,
        age: i64,
        sum_length: i64,
        came: i32,
        went: i32,
    }
}

/// The outcome of an attempt to merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merged {
    Some,
    /// The segments have too many chunks to be merged at once.
    TooLarge,
    Nothing,
}

/// With this many segments, the process that should have merged them has not done so in time. Then any
/// process may merge more of them at once.
const MANY: usize = 16;

/// Merges the youngest segments if they are too many for their size, or all segments if many of their chunks
/// are gone. Merges at most `most` chunks at once, or ten times as many if there are [`MANY`] segments,
/// because every question reads each of them.
pub fn merge(owner: &Owner, most: u64) -> Result<Merged> {
    let segments = segments_of(owner)?;
    let sizes: Vec<segment_merging::Size> = segments
        .iter()
        .map(|segment| segment_merging::Size { came: segment.came as u64, went: segment.went as u64 })
        .collect();
    let Some(first) = segment_merging::first_to_merge(&sizes) else { return Ok(Merged::Nothing) };
    let most = if sizes.len() >= MANY { most.saturating_mul(10) } else { most };
    let is_within = sizes[first..].iter().map(|size| size.came + size.went).sum::<u64>() <= most;
    let within = if is_within { Some(first) } else { segment_merging::first_to_merge_within(&sizes, most) };
    let Some(first) = within else { return Ok(Merged::TooLarge) };
    let merged = &segments[first..];
    let (numbers, came, went) = renumber(merged, first == 0)?;
    let numbers_of: Vec<i64> = merged.iter().map(|segment| segment.segment_no).collect();
    if !came.is_empty() || !went.is_empty() {
        let mut pages: Vec<Pages> = merged.iter().map(|segment| Pages::of(segment.segment_no)).collect();
        let sources = pages
            .iter_mut()
            .zip(&numbers)
            .map(|(pages, numbers)| Source { pages: || pages.next_page(), numbers })
            .collect();
        let age = merged.iter().map(|segment| segment.age).max();
        let mut writer = Writer::begin(owner, age, &came, &went)?;
        bm25::merge(sources, |page| writer.write(page))?;
        let sum_length = merged.iter().map(|segment| segment.sum_length).sum();
        writer.finish(Totals { chunks: 0, sum_length })?;
    }
    spi::execute("DELETE FROM kb.bm25_segments WHERE segment_no = ANY ($1)", &[Arg::Longs(&numbers_of)])?;
    Ok(Merged::Some)
}

/// The owners whose segments have more than `least` chunks together.
pub fn large(least: u64) -> Result<Vec<Owner>> {
    spi::write(
        "SELECT build_no, kb_no, tenant_id FROM kb.bm25_segments
         GROUP BY build_no, kb_no, tenant_id HAVING count(*) > 1 AND sum(came::bigint + went) > $1",
        &[Arg::Long(least as i64)],
        Owner::from_row,
    )
}

/// In order, the oldest first.
fn segments_of(owner: &Owner) -> Result<Vec<MergedSegment>> {
    spi::write(
        "SELECT segment_no, age, sum_length, came, went FROM kb.bm25_segments
         WHERE build_no = $1 AND tenant_id = $2 ORDER BY age",
        &[Arg::Long(owner.build_no), Arg::Text(&owner.tenant_id)],
        MergedSegment::from_row,
    )
}

/// Returns the new numbers of each segment's chunks, the chunks in the order of these numbers, and the
/// deleted chunks of still older segments; `are_all` says that there are none older.
fn renumber(merged: &[MergedSegment], are_all: bool) -> Result<(Vec<Vec<u32>>, Vec<Uuid>, Vec<Uuid>)> {
    let came = merged.iter().map(|s| segments::ids(s.segment_no, false)).collect::<Result<Vec<_>>>()?;
    let went = merged.iter().map(|s| segments::ids(s.segment_no, true)).collect::<Result<Vec<_>>>()?;
    let ever_went: HashSet<Uuid> = went.iter().flatten().copied().collect();
    let mut here: HashMap<Uuid, (usize, usize)> = HashMap::new();
    let mut dead: HashSet<(usize, usize)> = HashSet::new();
    let mut remain = Vec::new();
    for (source, (came, went)) in came.iter().zip(&went).enumerate() {
        // A chunk that a segment marks as deleted is in an older one, not in the segment itself.
        for id in went {
            match here.remove(id) {
                Some(place) => drop(dead.insert(place)),
                None => remain.push(*id),
            }
        }
        let known = came.iter().enumerate().filter(|(_, id)| ever_went.contains(*id));
        here.extend(known.map(|(number, id)| (*id, (source, number))));
    }
    let mut kept = Vec::new();
    let mut numbers = Vec::with_capacity(came.len());
    for (source, came) in came.iter().enumerate() {
        let renumbered = came.iter().enumerate().map(|(number, id)| {
            if dead.contains(&(source, number)) {
                return DEAD;
            }
            kept.push(*id);
            kept.len() as u32 - 1
        });
        numbers.push(renumbered.collect());
    }
    if are_all {
        remain.clear();
    }
    Ok((numbers, kept, remain))
}
