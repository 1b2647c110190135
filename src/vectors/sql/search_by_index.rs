//! The nearest vectors, by the HNSW indexes of a table's segments and by a scan of the rows that no index has
//! yet. The search continues from where it stopped as long as more rows are wanted.
//!
//! Each segment has a portal of its own, because each has its own ef_search. All portals use the snapshot of
//! the caller's statement, so the answer is right whichever indexes exist. Under a filter, or where policies
//! hide rows, a segment may return too few rows because those that pass lie far from the question, while
//! another segment returns enough rows that are farther still. For a segment that returned too few, the
//! search therefore finds out how far its scan has come, and rows of other segments beyond that distance do
//! not count.

use super::Searched;
use super::nearest::pair;
use super::segments::condition as condition_of;
use super::tail::Tail;
use crate::pg::cursor::Cursor;
use crate::pg::index_lookup;
use crate::pg::role::as_owner;
use crate::pg::setting;
use crate::pg::spi::{self, Arg, Row};
use crate::pg::statement_arguments::Arguments;
use crate::sql::{BY_INDEX_UNPLANNED, IN_ORDER};
use kb_search::ef_search;
use kb_search::vector_segments::{CoveredPart, Segment, WHOLE, parts};
use kb_types::error::Result;
use std::collections::HashSet;
use std::ffi::{CStr, CString};
use uuid::Uuid;

/// The parts of a search, as SQL about the vectors v.
pub struct Statement<'a> {
    pub table: String,
    /// The name of the table in schema kb.
    pub table_name: String,
    pub kb_no: i64,
    /// The distance, as an expression.
    pub distance: String,
    /// The number of the build, as an argument.
    pub build: String,
    /// The condition on the chunk of a vector; empty for none.
    pub passes: String,
    /// The first two are the question and the number of the build.
    pub arguments: Arguments<'a>,
}

/// How far an index is searched: pgvector's hnsw.ef_search, as for one index of all vectors, and its
/// hnsw.max_scan_tuples, which is 0 for a search in one pass.
#[derive(Clone, Copy)]
pub struct Effort {
    pub ef_search: usize,
    pub visits: usize,
}

/// At least this many packed vectors are kept as candidates for each row that is wanted, and in all. More
/// than a few of them are seldom read.
const PACKED: usize = 16;
const LEAST_PACKED: usize = 1024;
/// This many times as many are kept when all of them have been compared and others may be as near.
const FURTHER: usize = 16;

/// pgvector ends a scan that has used this multiple of work_mem (hnsw.scan_mem_multiplier). Up to the first
/// number of visits, the number of visits alone is to end a scan. A visited vector takes about 250 bytes, so
/// this uses 5 MB.
const MEMORY: (usize, &CStr) = (20_000, c"1000");

/// A running search. The same role must open and read it.
pub struct IndexScan<'a> {
    statement: Statement<'a>,
    effort: Effort,
    sources: Vec<SearchedPart>,
    /// Rows that were found and not returned yet, the nearest first.
    found: Vec<(Uuid, f64)>,
    given: HashSet<Uuid>,
    /// Beyond this distance rows may be missing, so none of those is returned.
    reach: f64,
}

/// A part of the table that is searched.
struct SearchedPart {
    kind: Kind,
    /// Whether it has no further rows.
    is_done: bool,
    /// No row that it has not returned yet is nearer than this, except rows that an index has missed.
    seen: f64,
}

enum Kind {
    /// A segment, by its index.
    Segment {
        cursor: Cursor,
        segment: Segment,
        ef_search: usize,
    },
    /// Rows without an index, one by one.
    Rest(Cursor),
    Packed(Packed),
}

/// The candidates among the chunks that are packed from number `from` on.
struct Packed {
    tail: Tail,
    from: i32,
    /// In the order of the lower bound of the distance, which stands beside each.
    near: Vec<(f64, Uuid)>,
    next: usize,
    /// All other chunks are at least this far away.
    left_out: f64,
    /// How many candidates are compared at once.
    batch: usize,
}

impl<'a> IndexScan<'a> {
    /// Begins a search for about `limit` rows. `searched` is None if there is no index.
    pub fn open(
        statement: Statement<'a>,
        searched: Option<&Searched>,
        tail: Option<Tail>,
        effort: Effort,
        limit: usize,
    ) -> Result<IndexScan<'a>> {
        setting::load_pgvector();
        let segments = searched.map_or(&[][..], |searched| &searched.cover);
        let end = segments.last().map_or(Some(0), |segment| segment.last.checked_add(1));
        // The packed part of the rows that have no index, and the number from which on they are packed.
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
            sources.push(SearchedPart::new(Kind::Segment { cursor, segment: segment.clone(), ef_search }));
        }
        for (first, last) in statement.rests(searched, packed.as_ref().map(|packed| packed.from)) {
            sources.push(SearchedPart::new(Kind::Rest(statement.open(&statement.rest(first, last))?)));
        }
        if let Some(packed) = packed {
            let seen = packed.bound();
            sources.push(SearchedPart { seen, is_done: seen == f64::INFINITY, kind: Kind::Packed(packed) });
        }
        let (found, given, reach) = (Vec::new(), HashSet::new(), f64::INFINITY);
        Ok(IndexScan { statement, effort, sources, found, given, reach })
    }

    /// The next chunks and their distances, the nearest first. If there are fewer than `count`, the search
    /// finds no others. If the nearest rows of some segment all fail the filter or belong to other tenants,
    /// only those rows of other segments are returned that are nearer than that segment was searched: beyond
    /// that distance rows may be missing. When the scan of an index continues, it may return rows that are
    /// nearer than those before.
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

    /// The distance of the last of this many rows that were found, or infinity if there are fewer.
    fn distance_of(&self, count: usize) -> f64 {
        let last = count.checked_sub(1).and_then(|last| self.found.get(last));
        last.map_or(f64::INFINITY, |(_, distance)| *distance)
    }

    /// If a segment has no further rows within `farthest`, although it has not returned all that it holds,
    /// finds out how far it was searched.
    fn bound_reach(&mut self, farthest: f64) -> Result<()> {
        for source in &mut self.sources {
            if let Kind::Segment { segment, ef_search, .. } = &source.kind
                && source.is_done
                && source.seen < farthest
                && !self.effort.is_exhaustive(segment)
            {
                let reach = self.statement.reach(segment, *ef_search)?.unwrap_or(f64::INFINITY);
                self.reach = self.reach.min(reach);
                // This is asked once for each segment.
                source.seen = f64::INFINITY;
            }
        }
        Ok(())
    }
}

impl SearchedPart {
    fn new(kind: Kind) -> SearchedPart {
        SearchedPart { kind, is_done: false, seen: f64::NEG_INFINITY }
    }

    fn may_have(&self, farthest: f64) -> bool {
        match &self.kind {
            _ if self.is_done => false,
            // A packed vector is no nearer than its bound, and may be as near.
            Kind::Packed(packed) if packed.next < packed.near.len() => self.seen <= farthest,
            _ => self.seen < farthest,
        }
    }

    /// About `count` further rows.
    fn next(
        &mut self,
        statement: &Statement,
        effort: Effort,
        count: usize,
        farthest: f64,
    ) -> Result<Vec<(Uuid, f64)>> {
        let found = match &mut self.kind {
            Kind::Segment { cursor, ef_search, .. } => {
                Effort { ef_search: *ef_search, ..effort }.with(|| cursor.next(count, pair))?
            }
            Kind::Rest(cursor) => cursor.next(count, pair)?,
            Kind::Packed(packed) => {
                match packed.next(statement, farthest)? {
                    Some(found) => {
                        self.seen = packed.bound();
                        self.is_done = self.seen == f64::INFINITY;
                        return Ok(found);
                    }
                    // This snapshot cannot use the packed vectors.
                    None => {
                        let rest = statement.open(&statement.rest(packed.from, i32::MAX))?;
                        *self = SearchedPart::new(Kind::Rest(rest));
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
    /// No chunk that has not been compared yet is nearer than this.
    fn bound(&self) -> f64 {
        self.near.get(self.next).map_or(self.left_out, |(bound, _)| *bound)
    }

    /// Compares some of the candidates that may be as near as `farthest`, and returns those that pass. If a
    /// filter excludes many of them, more candidates are requested; those that are farther than enough other
    /// rows are not looked up. Returns None if this snapshot cannot use the packed vectors.
    fn next(&mut self, statement: &Statement, farthest: f64) -> Result<Option<Vec<(Uuid, f64)>>> {
        if self.next == self.near.len() {
            let most = self.near.len() * FURTHER;
            let Some(further) = self.tail.nearest(statement.kb_no, self.from, most)? else { return Ok(None) };
            // Candidates with an equal bound may have been left out.
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
    /// Whether a scan that returned fewer rows than were requested has returned all rows of a segment that
    /// qualify. The number of rows of a segment is an estimate, or unknown (0): after pg_upgrade, or if
    /// ANALYZE has met no row of a small segment.
    fn is_exhaustive(self, segment: &Segment) -> bool {
        self.visits <= MEMORY.0 && segment.rows > 0 && segment.rows * 2 <= self.visits as u64
    }

    /// Runs `work`, which opens a scan of an index or reads from one.
    fn with<T>(self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let text = |number: usize| CString::new(number.to_string()).unwrap_or_default();
        // Relaxed order keeps a row that arrives late but is nearer than earlier ones. The rows are sorted
        // afterwards.
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
    /// The number of vectors that the scan visits is decided already (kb-search/src/plan.rs), so one plan
    /// serves.
    fn open(&self, sql: &str) -> Result<Cursor> {
        setting::with(BY_INDEX_UNPLANNED, || Cursor::open(sql, &self.arguments.all()))
    }

    /// The nearest rows of a segment that pass, by its index.
    fn indexed(&self, segment: &Segment) -> String {
        let Statement { table, distance, passes, .. } = self;
        let and = if passes.is_empty() { "" } else { " AND " };
        format!(
            "SELECT v.chunk_id, {distance} AS distance FROM {table} v WHERE {}{and}{passes} ORDER BY {distance}",
            self.of(segment)
        )
    }

    /// The ranges between and behind the segments, as first and last numbers, up to the number from which on
    /// all rows are `packed`. Only the index on the numbers can serve them. At rest no row lies behind the
    /// segments, so fewer scans are to be started.
    fn rests(&self, searched: Option<&Searched>, packed: Option<i32>) -> Vec<(i32, i32)> {
        let segments = searched.map_or(&[][..], |searched| &searched.cover);
        let rest = |part| {
            let CoveredPart::Rest { first, last } = part else { return None };
            let is_empty =
                |index| last == i32::MAX && !index_lookup::may_reach(&self.table_name, index, first);
            if searched.and_then(|searched| searched.by_number).is_some_and(is_empty) {
                return None;
            }
            let last = packed.map_or(last, |packed| last.min(packed - 1));
            (first <= last).then_some((first, last))
        };
        parts(segments).into_iter().filter_map(rest).collect()
    }

    /// The nearest rows of a range without an index that pass. Rows are looked up for the filter from the
    /// nearest on.
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

    /// The distances of those of these chunks that pass.
    fn compare(&self, near: &[(f64, Uuid)]) -> Result<Vec<(Uuid, f64)>> {
        let Statement { table, distance, build, passes, arguments, .. } = self;
        let ids: Vec<Uuid> = near.iter().map(|(_, chunk_id)| *chunk_id).collect();
        let arguments: Vec<Arg> = arguments.all().into_iter().chain([Arg::Uuids(&ids)]).collect();
        let and = if passes.is_empty() { "" } else { " AND " };
        let sql = format!(
            "SELECT v.chunk_id, ({distance}) + 0 AS distance FROM {table} v
             WHERE v.build_no = {build} AND v.chunk_id = ANY (${}){and}{passes}",
            arguments.len()
        );
        setting::with(BY_INDEX_UNPLANNED, || spi::read(&sql, &arguments, pair))
    }

    /// The distance of the last of the `ef_search` nearest rows of a segment, whether they pass or not and
    /// whoever may read them. None: the segment has no more rows than these.
    fn reach(&self, segment: &Segment, ef_search: usize) -> Result<Option<f64>> {
        let Statement { table, distance, .. } = self;
        let sql = format!(
            "SELECT count(*) AS count, max(v.distance) AS farthest FROM (
                 SELECT {distance} AS distance FROM {table} v
                 WHERE {} ORDER BY {distance} LIMIT {ef_search}) v",
            self.of(segment)
        );
        let row = |row: &Row| Ok((row.get::<i64>("count")? as usize, row.get::<Option<f64>>("farthest")?));
        // Only the arguments that the text names, because the text may be the same under other filters.
        let arguments = self.arguments.all();
        let own = arguments.get(..2).unwrap_or_default();
        let read = || setting::with(IN_ORDER, || spi::read(&sql, own, row));
        let read = || setting::with(BY_INDEX_UNPLANNED, read);
        // The read runs as the owner, because a policy would hide the rows of other tenants. Its result only
        // decides whether other rows are considered, too.
        let found = as_owner(|| Effort { ef_search, visits: 0 }.with(read))?;
        let (count, farthest) = found.into_iter().next().unwrap_or_default();
        // The index returns a few rows less than requested if some are dead, and none if all are dead or
        // belong to another build.
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
