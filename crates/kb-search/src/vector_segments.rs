//! Plans the segments of a vector table: ranges of its column `segment`, whose numbers grow with the rows,
//! each with an HNSW index of its own. Rows above the last range have no index yet and are all compared in
//! packed form (tail.rs). Building a segment in bulk costs a fraction of inserting its rows one by one.
//! Adjacent ranges are merged by building one index for all of them.
//!
//! Inserting a vector into an HNSW index costs many times what it costs in a bulk build, so nothing is ever
//! inserted. New rows are above all ranges, no row moves when segments are merged, and a kill at any time
//! leaves at most an invalid index, which is dropped. While there is traffic, drafts are built (with a small
//! ef_construction, of the oldest rows only), because writers and questions need the same cores. A draft is
//! rebuilt when it is quiet. The number of ranges that a search visits is therefore bounded: at rest each has
//! at least twice the rows of all younger ones, which makes about seven for a million rows, and there are
//! never more than [`MOST`] and one.

use crate::segment_merging;
use crate::segment_merging::Size;

/// A range of numbers of rows, both ends included, that an index covers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Segment {
    pub first: i32,
    pub last: i32,
    /// The approximate number of rows.
    pub rows: u64,
    /// Whether its index was built in haste and is to be rebuilt when it is quiet.
    pub is_draft: bool,
}

/// The range of an index without a condition, which tables had before there were segments.
pub const WHOLE: (i32, i32) = (0, i32::MAX);

/// A part of a table that a search visits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoveredPart {
    /// Searched by an index.
    Indexed { first: i32, last: i32 },
    /// Compared row by row.
    Rest { first: i32, last: i32 },
}

impl Segment {
    pub fn is_whole(&self) -> bool {
        (self.first, self.last) == WHOLE
    }

    /// Whether it can replace the other segment. Of two with the same range, the one that is not a draft
    /// replaces the draft.
    fn has(&self, other: &Segment) -> bool {
        let is_same = (self.first, self.last) == (other.first, other.last);
        self.first <= other.first && other.last <= self.last && (!is_same || other.is_draft && !self.is_draft)
    }
}

/// The segments that a search uses, in order. Each number is in at most one of them. Of two candidates the
/// longer one is chosen, or the one that is not a draft.
pub fn cover(mut valid: Vec<Segment>) -> Vec<Segment> {
    valid.sort_by_key(|segment| (segment.first, std::cmp::Reverse(segment.last), segment.is_draft));
    let mut covered: Vec<Segment> = Vec::new();
    for segment in valid {
        if covered.last().is_none_or(|before| before.last < segment.first) {
            covered.push(segment);
        }
    }
    covered
}

/// The parts that a search visits: the segments, and the ranges between and after them.
pub fn parts(cover: &[Segment]) -> Vec<CoveredPart> {
    let mut parts = Vec::new();
    let mut next = Some(0);
    for &Segment { first, last, .. } in cover {
        if let Some(next) = next.filter(|next| *next < first) {
            parts.push(CoveredPart::Rest { first: next, last: first - 1 });
        }
        parts.push(CoveredPart::Indexed { first, last });
        next = last.checked_add(1);
    }
    parts.extend(next.map(|first| CoveredPart::Rest { first, last: i32::MAX }));
    parts
}

/// Whether an index is unnecessary besides these valid ones.
pub fn is_redundant(index: &Segment, valid: &[Segment]) -> bool {
    valid.iter().any(|other| match index.is_whole() {
        // Every new row would have to be inserted into it.
        true => !other.is_whole() && other.first == 0,
        false => !other.is_whole() && other.has(index),
    })
}

/// How much is currently written to a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Traffic {
    /// Documents are waiting.
    Busy,
    /// No documents are waiting.
    Calm,
    /// No documents have been waiting for a while.
    Quiet,
}

/// Fewer rows than this get no index even when it is quiet.
const LEAST_REST: u64 = 1_000;
/// Segments with fewer rows are small. They are merged, together with the rows without an index, within
/// seconds.
const SMALL: u64 = 16_000;
const MOST_SMALL: usize = 4;
/// If there are more segments, they are merged two at a time even when it is not quiet.
const MOST: usize = 16;

/// The next index to build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Build an index for these numbers.
    Build {
        first: i32,
        last: i32,
    },
    /// Nothing now, but something once it is quiet.
    WhenQuiet,
    Nothing,
}

/// The number of rows after the segments at which an index is built even under traffic. There should be at
/// most `most`, and more arrive while it is built.
pub fn rest_while_busy(most: u64) -> u64 {
    most - most / 4
}

/// About how many of the oldest rows after the segments an index gets that is built under traffic. This
/// limits its time and memory, however many rows have arrived. None if it gets all rows, because it replaces
/// an index for the whole table.
pub fn draft_of_rest(cover: &[Segment], most: u64) -> Option<u64> {
    let is_whole = cover.last().is_some_and(Segment::is_whole);
    (!is_whole).then(|| (most / 2).max(SMALL))
}

/// The next step for a table with these segments (see [`cover`]) and `rest` rows after them, up to number
/// `last`. There should be at most `most` such rows. The table gets its first index at `least` rows.
///
/// Under traffic, rows get an index only when comparing them would soon take long, and only small segments
/// are merged, because only one index is built at a time and rows accumulate during a long build. When it is
/// quiet, all rows get an index, and a segment is kept only if it is not a draft and has twice the rows of
/// all younger ones.
pub fn next(cover: &[Segment], rest: u64, last: i32, least: u64, most: u64, traffic: Traffic) -> Next {
    let build = |first| Next::Build { first, last };
    let consecutive = consecutive(cover);
    if consecutive < cover.len() {
        return build(cover[..consecutive].last().map_or(0, |segment| segment.last + 1));
    }
    let Some(newest) = cover.last() else {
        let least = if traffic == Traffic::Busy { least.max(rest_while_busy(most)) } else { least.max(1) };
        return if rest >= least { build(0) } else { Next::Nothing };
    };
    if newest.is_whole() {
        return build(0);
    }
    let wants_soon = rest >= LEAST_REST.min(rest_while_busy(most));
    let wants_index = if traffic == Traffic::Quiet { wants_soon } else { rest >= rest_while_busy(most) };
    let mut sizes: Vec<Size> = cover.iter().map(|segment| Size { came: segment.rows, went: 0 }).collect();
    if wants_index {
        sizes.push(Size { came: rest, went: 0 });
    }
    let draft = cover.iter().position(|segment| segment.is_draft);
    let merged = segment_merging::first_to_merge(&sizes)
        .into_iter()
        .chain(draft)
        .min()
        .and_then(|first| cover.get(first));
    let small = cover.iter().rev().take_while(|segment| segment.rows < SMALL).count();
    match (traffic, merged) {
        (Traffic::Quiet, Some(segment)) => build(segment.first),
        _ if cover.len() > MOST => {
            let least = cover.windows(2).min_by_key(|pair| pair[0].rows + pair[1].rows);
            least.map_or(Next::Nothing, |pair| Next::Build { first: pair[0].first, last: pair[1].last })
        }
        _ if wants_index && small >= MOST_SMALL => build(cover[cover.len() - small].first),
        _ if wants_index => build(newest.last + 1),
        (Traffic::Calm, Some(_)) => Next::WhenQuiet,
        (Traffic::Calm, None) if wants_soon => Next::WhenQuiet,
        _ => Next::Nothing,
    }
}

/// How many of the segments are consecutive from number 0 on. After a gap, which a dropped index leaves,
/// everything is rebuilt.
fn consecutive(cover: &[Segment]) -> usize {
    let mut end = -1;
    let follows = |segment: &&Segment| {
        let follows = segment.first == end + 1;
        end = segment.last;
        follows
    };
    cover.iter().take_while(follows).count()
}

#[cfg(test)]
#[path = "vector_segments_tests.rs"]
mod tests;
