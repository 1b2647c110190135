//! The nearest vectors by the HNSW indexes of a table's segments, and of the rows that no index has yet: a
//! search that goes on from where it was, as long as more are wanted.
//!
//! There is a portal for each segment, since each has an ef_search of its own, and all are under the snapshot
//! of the caller's statement, so the answer is right whichever indexes there are. Under a filter, or where
//! policies hide rows, a segment may give too few because what passes lies far from the question in it, while
//! another segment gives enough that are farther still. So a segment that gave too few is asked how far its
//! scan has come, and what others gave behind that does not count.

use super::Searched;
use super::segments::condition as condition_of;
use super::tail::Tail;
use crate::pg::cursor::Cursor;
use crate::pg::probe;
use crate::pg::role::as_owner;
use crate::pg::setting;
use crate::pg::spi::{self, Arg};
use crate::pg::statement_arguments::Arguments;
use crate::sql::{BY_INDEX_UNPLANNED, IN_ORDER};
use kb_search::ef_search;
use kb_search::segments::{Part, Segment, WHOLE, parts};
use kb_types::error::Result;
use std::collections::HashSet;
use std::ffi::{CStr, CString};
use uuid::Uuid;

/// What a search is made of, as SQL about the vectors v.
pub struct Statement<'a> {
    pub table: String,
    /// Its name in schema kb.
    pub table_name: String,
    pub kb_no: i64,
    /// An expression.
    pub distance: String,
    /// The build's number, an argument.
    pub build: String,
    /// What a vector's chunk must pass; empty: nothing.
    pub passes: String,
    /// First the question and the build's number.
    pub arguments: Arguments<'a>,
}

/// How far an index is searched: pgvector's hnsw.ef_search, for one index of all vectors, and its hnsw.max_scan_tuples; 0: in one pass.
#[derive(Clone, Copy)]
pub struct Effort {
    pub ef_search: usize,
    pub visits: usize,
}

/// Packed vectors that are kept for being near at least, for each row that is wanted, and in all: seldom more than a few of them are
/// read.
const PACKED: usize = 16;
const LEAST_PACKED: usize = 1024;
/// So many times as many, where all of them are compared and others may be as near.
const FURTHER: usize = 16;

/// pgvector ends a scan that has taken work_mem times this (hnsw.scan_mem_multiplier); up to so many visits only these end it. A
/// vector that it has visited takes some 250 bytes, so that it keeps 5 MB.
const MEMORY: (usize, &CStr) = (20_000, c"1000");

/// A search that is under way. It is opened and read as the same role.
pub struct Scan<'a> {
    statement: Statement<'a>,
    effort: Effort,
    sources: Vec<Source>,
    /// Found and not given yet; sorted, the nearest first.
    found: Vec<(Uuid, f64)>,
    given: HashSet<Uuid>,
    /// Farther than this rows may be missing: none of those is given.
    reach: f64,
}

/// A part of the table that is looked at.
struct Source {
    kind: Kind,
    /// It has no further rows.
    is_done: bool,
    /// What it has not given yet is no nearer than this, but for what an index has missed.
    seen: f64,
}

enum Kind {
    /// By its index.
    Segment {
        cursor: Cursor,
        segment: Segment,
        ef_search: usize,
    },
    /// Row by row.
    Rest(Cursor),
    Packed(Packed),
}

/// Those of the chunks that are packed from number `from` on that may be nearest.
struct Packed {
    tail: Tail,
    from: i32,
    /// With a bound of the distance of each, in that order.
    near: Vec<(f64, Uuid)>,
    next: usize,
    /// All others are at least as far away as this.
    left_out: f64,
    /// How many are compared at once.
    batch: usize,
}

impl<'a> Scan<'a> {
    /// Begins a search of which about `limit` rows are wanted; `searched`: None where there is no index.
    pub fn open(
        statement: Statement<'a>,
        searched: Option<&Searched>,
        tail: Option<Tail>,
        effort: Effort,
        limit: usize,
    ) -> Result<Scan<'a>> {
        setting::load_pgvector();
        let segments = searched.map_or(&[][..], |searched| &searched.cover);
        let end = segments.last().map_or(Some(0), |segment| segment.last.checked_add(1));
        // What is packed of the rows that have no index, and from where on.
        let packed = match tail.zip(end) {
            Some((tail, end)) => {
                let (from, most) = (end.max(tail.first), (limit * PACKED).max(LEAST_PACKED));
                let near = tail.nearest(statement.kb_no, from, most.max(effort.ef_search))?;
                let batch = 2 * limit + 16;
                near.map(|(near, left_out)| Packed { tail, from, near, next: 0, left_out, batch })
            }
            None => None,
        };
        let all = segments.iter().map(|segment| segment.rows).sum();
        let mut sources = Vec::new();
        for segment in segments {
            let ef_search = ef_search::of_segment(segment, effort.ef_search, limit, all);
            let open = || setting::with(IN_ORDER, || statement.open(&statement.indexed(segment)));
            let cursor = Effort { ef_search, ..effort }.with(open)?;
            sources.push(Source::new(Kind::Segment { cursor, segment: segment.clone(), ef_search }));
        }
        for (first, last) in statement.rests(searched, packed.as_ref().map(|packed| packed.from)) {
            sources.push(Source::new(Kind::Rest(statement.open(&statement.rest(first, last))?)));
        }
        if let Some(packed) = packed {
            let seen = packed.bound();
            sources.push(Source { seen, is_done: seen == f64::INFINITY, kind: Kind::Packed(packed) });
        }
        let (found, given, reach) = (Vec::new(), HashSet::new(), f64::INFINITY);
        Ok(Scan { statement, effort, sources, found, given, reach })
    }

    /// The next chunks and their distances, the nearest first; fewer than `count`: the search finds no others. Where the nearest of some
    /// segment all fail the filter, or are other tenants', before they are as far away as what others have, only those are given that are
    /// nearer: behind them others may be missing. Where an index scan has gone on, what it gives may be nearer than what it gave before.
    pub fn next(&mut self, count: usize) -> Result<Vec<(Uuid, f64)>> {
        loop {
            let farthest = self.distance_of(count);
            let mut has_looked = false;
            for source in self.sources.iter_mut().filter(|source| source.may_have(farthest)) {
                let new = source.next(&self.statement, self.effort, count, farthest)?;
                self.found.extend(new.into_iter().filter(|(chunk_id, _)| !self.given.contains(chunk_id)));
                has_looked = true;
            }
            if !has_looked {
                break;
            }
            self.found.sort_by(|(a_id, a), (b_id, b)| a.total_cmp(b).then(a_id.cmp(b_id)));
            self.found.dedup_by_key(|(chunk_id, _)| *chunk_id);
        }
        let farthest = self.distance_of(count);
        if farthest < self.reach {
            self.bound_reach(farthest)?;
        }
        let within = self.found.partition_point(|(_, distance)| *distance <= self.reach);
        let next: Vec<(Uuid, f64)> = self.found.drain(..within.min(count)).collect();
        self.given.extend(next.iter().map(|(chunk_id, _)| *chunk_id));
        Ok(next)
    }

    /// How far away the last is of so many that were found; infinitely, where there are fewer.
    fn distance_of(&self, count: usize) -> f64 {
        let last = count.checked_sub(1).and_then(|last| self.found.get(last));
        last.map_or(f64::INFINITY, |(_, distance)| *distance)
    }

    /// Where a segment has no further rows that are as near as `farthest`, though it has not given all that it holds: finds out how far it
    /// was searched.
    fn bound_reach(&mut self, farthest: f64) -> Result<()> {
        for source in &mut self.sources {
            if let Kind::Segment { segment, ef_search, .. } = &source.kind
                && source.is_done
                && source.seen < farthest
                && !self.effort.is_exhaustive(segment)
            {
                let reach = self.statement.reach(segment, *ef_search)?.unwrap_or(f64::INFINITY);
                self.reach = self.reach.min(reach);
                // It is asked for once.
                source.seen = f64::INFINITY;
            }
        }
        Ok(())
    }
}

impl Source {
    fn new(kind: Kind) -> Source {
        Source { kind, is_done: false, seen: f64::NEG_INFINITY }
    }

    fn may_have(&self, farthest: f64) -> bool {
        match &self.kind {
            _ if self.is_done => false,
            // What is packed is no nearer than its bound, and may be as near.
            Kind::Packed(packed) if packed.next < packed.near.len() => self.seen <= farthest,
            _ => self.seen < farthest,
        }
    }

    /// Further rows, about `count`.
    fn next(
        &mut self,
        statement: &Statement,
        effort: Effort,
        count: usize,
        farthest: f64,
    ) -> Result<Vec<(Uuid, f64)>> {
        let row = |row: &spi::Row| Ok((row.uuid(0)?, row.get::<f64>(1)?));
        let found = match &mut self.kind {
            Kind::Segment { cursor, ef_search, .. } => {
                Effort { ef_search: *ef_search, ..effort }.with(|| cursor.next(count, row))?
            }
            Kind::Rest(cursor) => cursor.next(count, row)?,
            Kind::Packed(packed) => {
                match packed.next(statement, farthest)? {
                    Some(found) => {
                        self.seen = packed.bound();
                        self.is_done = self.seen == f64::INFINITY;
                        return Ok(found);
                    }
                    // This snapshot cannot say.
                    None => {
                        let rest = statement.open(&statement.rest(packed.from, i32::MAX))?;
                        *self = Source::new(Kind::Rest(rest));
                        return Ok(Vec::new());
                    }
                }
            }
        };
        self.is_done = found.len() < count;
        self.seen = found.iter().fold(self.seen, |seen, (_, distance)| seen.max(*distance));
        Ok(found)
    }
}

impl Packed {
    /// No chunk that was not compared yet is nearer.
    fn bound(&self) -> f64 {
        self.near.get(self.next).map_or(self.left_out, |(bound, _)| *bound)
    }

    /// Compares some of those that may be as near as `farthest`, and gives those that pass. Where a filter leaves out many of them, more
    /// are asked for: what is farther than enough others are is not looked up. None: that cannot be said.
    fn next(&mut self, statement: &Statement, farthest: f64) -> Result<Option<Vec<(Uuid, f64)>>> {
        if self.next == self.near.len() {
            let most = self.near.len() * FURTHER;
            let Some(further) = self.tail.nearest(statement.kb_no, self.from, most)? else { return Ok(None) };
            // Equal ones may be there that were left out.
            self.next = further.0.partition_point(|(bound, _)| *bound < self.left_out);
            (self.near, self.left_out) = further;
        }
        let end = self.near.partition_point(|(bound, _)| *bound <= farthest);
        let batch = &self.near[self.next..end.clamp(self.next, self.next + self.batch)];
        let found = statement.compare(batch)?;
        self.next += batch.len();
        self.batch *= 2;
        Ok(Some(found))
    }
}

impl Effort {
    /// Whether a scan gives all of a segment that qualifies, where there is less than was asked for. How many rows a segment has is
    /// known about, or (0) not at all: after pg_upgrade, or where ANALYZE has met none of a small one's.
    fn is_exhaustive(self, segment: &Segment) -> bool {
        self.visits <= MEMORY.0 && segment.rows > 0 && segment.rows * 2 <= self.visits as u64
    }

    /// Runs `work`, which opens a scan of an index or reads from it.
    fn with<T>(self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let text = |number: usize| CString::new(number.to_string()).unwrap_or_default();
        // Relaxed: what comes late and is nearer than what came before is not left out. It is put in order afterwards.
        let order: &CStr = if self.visits == 0 { c"off" } else { c"relaxed_order" };
        let (ef_search, visits) = (text(self.ef_search), text(self.visits.max(1)));
        let settings = [
            (c"hnsw.ef_search", ef_search.as_c_str()),
            (c"hnsw.iterative_scan", order),
            (c"hnsw.max_scan_tuples", visits.as_c_str()),
            (c"hnsw.scan_mem_multiplier", if self.visits <= MEMORY.0 { MEMORY.1 } else { c"1" }),
        ];
        setting::with(&settings, work)
    }
}

impl Statement<'_> {
    /// How many vectors the scan visits is decided already (kb-search/src/plan.rs), so one plan serves.
    fn open(&self, sql: &str) -> Result<Cursor> {
        setting::with(BY_INDEX_UNPLANNED, || Cursor::open(sql, &self.arguments.all()))
    }

    /// The nearest of a segment that pass.
    fn indexed(&self, segment: &Segment) -> String {
        let Statement { table, distance, passes, .. } = self;
        let and = if passes.is_empty() { "" } else { " AND " };
        format!(
            "SELECT v.chunk_id, {distance} FROM {table} v WHERE {}{and}{passes} ORDER BY {distance}",
            self.of(segment)
        )
    }

    /// What lies between and behind the segments, up to where all is `packed`: first and last numbers. Only the index on segment fits.
    /// At rest nothing lies behind them, and less is to be started.
    fn rests(&self, searched: Option<&Searched>, packed: Option<i32>) -> Vec<(i32, i32)> {
        let segments = searched.map_or(&[][..], |searched| &searched.cover);
        let rest = |part| {
            let Part::Rest { first, last } = part else { return None };
            let is_empty = |index| last == i32::MAX && !probe::may_reach(&self.table_name, index, first);
            if searched.and_then(|searched| searched.by_number).is_some_and(is_empty) {
                return None;
            }
            let last = packed.map_or(last, |packed| last.min(packed - 1));
            (first <= last).then_some((first, last))
        };
        parts(segments).into_iter().filter_map(rest).collect()
    }

    /// The nearest of a range without an index that pass. Rows are looked up for the filter from the nearest on.
    fn rest(&self, first: i32, last: i32) -> String {
        let Statement { table, distance, build, passes, .. } = self;
        let passing = if passes.is_empty() { String::new() } else { format!("WHERE {passes}") };
        format!(
            "SELECT v.chunk_id, v.distance FROM (
                 SELECT v.chunk_id, v.build_no, ({distance}) + 0 AS distance FROM {table} v
                 WHERE v.build_no + 0 = {build} AND {} ORDER BY ({distance}) + 0 OFFSET 0) v
             {passing}",
            condition_of("v.", first, last)
        )
    }

    /// The distances of these chunks that pass.
    fn compare(&self, near: &[(f64, Uuid)]) -> Result<Vec<(Uuid, f64)>> {
        let Statement { table, distance, build, passes, arguments, .. } = self;
        let ids: Vec<Uuid> = near.iter().map(|(_, chunk_id)| *chunk_id).collect();
        let arguments: Vec<Arg> = arguments.all().into_iter().chain([Arg::Uuids(&ids)]).collect();
        let and = if passes.is_empty() { "" } else { " AND " };
        let sql = format!(
            "SELECT v.chunk_id, ({distance}) + 0 FROM {table} v
             WHERE v.build_no = {build} AND v.chunk_id = ANY (${}){and}{passes}",
            arguments.len()
        );
        let row = |row: &spi::Row| Ok((row.uuid(0)?, row.get::<f64>(1)?));
        setting::with(BY_INDEX_UNPLANNED, || spi::read(&sql, &arguments, row))
    }

    /// How far away the last is of the nearest `ef_search` of a segment, whether they pass or not and whoever may read them; None:
    /// these are all of it.
    fn reach(&self, segment: &Segment, ef_search: usize) -> Result<Option<f64>> {
        let Statement { table, distance, .. } = self;
        let sql = format!(
            "SELECT count(*), max(v.distance) FROM (
                 SELECT {distance} AS distance FROM {table} v
                 WHERE {} ORDER BY {distance} LIMIT {ef_search}) v",
            self.of(segment)
        );
        let row = |row: &spi::Row| Ok((row.get::<i64>(0)? as usize, row.opt::<f64>(1)?));
        // Those that the text names: it may be the same under other filters.
        let arguments = self.arguments.all();
        let own = arguments.get(..2).unwrap_or_default();
        let read = || setting::with(IN_ORDER, || spi::read(&sql, own, row));
        let read = || setting::with(BY_INDEX_UNPLANNED, read);
        // A policy would hide which of them are other tenants'. All that becomes of it is whether others are looked at, too.
        let found = as_owner(|| Effort { ef_search, visits: 0 }.with(read))?;
        let (count, farthest) = found.into_iter().next().unwrap_or_default();
        // The index gives a few less than it was asked for where some are dead, and none where all are, or are another build's.
        let is_all = match segment.rows as usize {
            0 => count * 10 < ef_search * 9,
            rows => count * 10 >= rows * 9,
        };
        Ok((!is_all).then(|| farthest.unwrap_or(f64::NEG_INFINITY)))
    }

    /// The condition on the rows of a segment.
    fn of(&self, segment: &Segment) -> String {
        let build = format!("v.build_no = {}", self.build);
        match (segment.first, segment.last) {
            WHOLE => build,
            (first, last) => format!("{build} AND {}", condition_of("v.", first, last)),
        }
    }
}
