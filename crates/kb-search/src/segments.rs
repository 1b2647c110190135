//! Segments of a vector table: ranges of its column `segment`, whose numbers grow with the rows, each with an
//! HNSW index of its own. What is above the last range has no index yet: all of it is compared, by what is
//! packed of it (tail.rs). Built in bulk, a segment costs a fraction of what its rows cost one after the
//! other; ranges side by side are merged by building one index for all of them. Pure.
//!
//! Inserting a vector into an HNSW index costs many times what it costs in a bulk build, so nothing is ever
//! inserted. New rows are above all ranges, no row moves when segments are merged, and a kill at any time
//! leaves at most an invalid index, which is dropped. While there is traffic, what is built is a draft (a
//! small ef_construction, the oldest rows only), because writers and questions want the same cores; a draft
//! is built again when it is quiet. So the number of ranges that a search looks at is bounded: at rest each
//! has twice the rows of all younger ones, some seven of a million rows, and never more than [`MOST`] and
//! one.

use super::levels::{self, Size};

/// Numbers of rows, both ends included, which an index covers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Segment {
    pub first: i32,
    pub last: i32,
    /// About.
    pub rows: u64,
    /// Its index was built in haste: it is built again when it is quiet.
    pub is_draft: bool,
}

/// What an index without a condition covers, as a table had it before there were segments.
pub const WHOLE: (i32, i32) = (0, i32::MAX);

/// A part of a table that a search looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// By an index.
    Indexed { first: i32, last: i32 },
    /// Row by row.
    Rest { first: i32, last: i32 },
}

impl Segment {
    pub fn is_whole(&self) -> bool {
        (self.first, self.last) == WHOLE
    }

    /// Whether it serves for all that another one does; of two for the same numbers, one that is no draft for the draft.
    fn has(&self, other: &Segment) -> bool {
        let is_same = (self.first, self.last) == (other.first, other.last);
        self.first <= other.first && other.last <= self.last && (!is_same || other.is_draft && !self.is_draft)
    }
}

/// Those that a search uses, from the first number on: each number is in one of them at most, and of two the longer one is taken, or
/// the one that is no draft.
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

/// What a search looks at: the segments, and what lies between and behind them.
pub fn parts(cover: &[Segment]) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut next = Some(0);
    for &Segment { first, last, .. } in cover {
        if let Some(next) = next.filter(|next| *next < first) {
            parts.push(Part::Rest { first: next, last: first - 1 });
        }
        parts.push(Part::Indexed { first, last });
        next = last.checked_add(1);
    }
    parts.extend(next.map(|first| Part::Rest { first, last: i32::MAX }));
    parts
}

/// Whether an index is of no use beside these valid ones.
pub fn is_redundant(index: &Segment, valid: &[Segment]) -> bool {
    valid.iter().any(|other| match index.is_whole() {
        // It costs each new row an insertion.
        true => !other.is_whole() && other.first == 0,
        false => !other.is_whole() && other.has(index),
    })
}

/// How much is written to a table now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Traffic {
    /// Documents wait.
    Busy,
    /// None does.
    Calm,
    /// None has for a while.
    Quiet,
}

/// Fewer rows stay without an index though nothing else is coming.
const LEAST_REST: u64 = 1_000;
/// Segments of fewer rows are small: so many are merged at once, with what has no index, in seconds.
const SMALL: u64 = 16_000;
const MOST_SMALL: usize = 4;
/// More are merged though it is not quiet, two at a time.
const MOST: usize = 16;

/// What is to be built next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// An index for these numbers.
    Build {
        first: i32,
        last: i32,
    },
    /// Nothing now; when it is quiet, there is something to be built.
    WhenQuiet,
    Nothing,
}

/// Rows behind the segments for which an index is built though more are coming; they are to be `most` at most, and others come
/// while it is being built.
pub fn rest_while_busy(most: u64) -> u64 {
    most - most / 4
}

/// Rows behind the segments that an index gets which is built while more are coming, about: the oldest ones. However many have come,
/// it takes no longer, and no more memory. None: it gets all, since an index for the whole table goes when it is there.
pub fn draft_of_rest(cover: &[Segment], most: u64) -> Option<u64> {
    let is_whole = cover.last().is_some_and(Segment::is_whole);
    (!is_whole).then(|| (most / 2).max(SMALL))
}

/// The next step for a table with these segments (see [`cover`]) and `rest` rows behind them, up to number `last`, which are to be
/// `most` at most; it has its first index from `least` rows on.
///
/// While there is traffic, rows are given an index only when comparing them would soon take long, and only small segments are merged,
/// for there is one build at a time and rows gather behind a long one. When it is quiet, all have an index, and a segment stays only
/// while it is no draft and has twice the rows of all younger ones.
pub fn next(cover: &[Segment], rest: u64, last: i32, least: u64, most: u64, traffic: Traffic) -> Next {
    let build = |first| Next::Build { first, last };
    let joined = joined(cover);
    if joined < cover.len() {
        return build(cover[..joined].last().map_or(0, |segment| segment.last + 1));
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
    let merged =
        levels::first_to_merge(&sizes).into_iter().chain(draft).min().and_then(|first| cover.get(first));
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

/// How many of these follow each other from number 0 on: behind a gap (somebody has dropped an index) all is built again.
fn joined(cover: &[Segment]) -> usize {
    let mut end = -1;
    let follows = |segment: &&Segment| {
        let follows = segment.first == end + 1;
        end = segment.last;
        follows
    };
    cover.iter().take_while(follows).count()
}

#[cfg(test)]
#[path = "segments_tests.rs"]
mod tests;
