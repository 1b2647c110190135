//! The nearest vectors by the HNSW indexes of a table's segments, and of the rows that no index has yet.

use super::Searched;
use super::segments::condition as condition_of;
use super::tail::{Near, Tail};
use crate::error::Result;
use crate::model::ef_search;
use crate::model::segments::{Part, Segment, WHOLE, parts};
use crate::pg::probe;
use crate::pg::role::as_owner;
use crate::pg::setting;
use crate::pg::spi::{self, Arg};
use crate::store::{BY_INDEX_UNPLANNED, IN_ORDER};
use std::ffi::{CStr, CString};
use uuid::Uuid;

/// What a search is made of, as SQL about the vectors v.
pub(super) struct Statement<'a> {
    pub table: &'a str,
    /// Its name in schema kb.
    pub table_name: &'a str,
    pub kb_no: i64,
    /// An expression.
    pub distance: &'a str,
    /// The build's number, an argument.
    pub build: &'a str,
    /// What a vector's chunk must pass; empty: nothing.
    pub passes: &'a str,
    /// First the question and the build's number.
    pub arguments: &'a [Arg<'a>],
    /// Chunks at most.
    pub limit: usize,
}

/// How far an index is searched: pgvector's hnsw.ef_search, for one index of all vectors, and its hnsw.max_scan_tuples; 0: in one pass.
#[derive(Clone, Copy)]
pub(super) struct Effort {
    pub ef_search: usize,
    pub visits: usize,
}

/// Packed vectors that are kept for being near at least, for each row that is wanted, and in all: seldom more than a few of them are
/// read.
const PACKED: usize = 16;
const LEAST_PACKED: usize = 1024;
/// So many times as many, where all of them are compared and others may be as near.
const FURTHER: usize = 16;

/// Chunks and their distances, the nearest first; `searched`: None where there is no index. Where the nearest of some segment all fail
/// the filter, or are other tenants', before they are as far away as what others have, only those are given that are nearer: behind
/// them others may be missing.
pub(super) fn nearest(
    statement: &Statement,
    searched: Option<&Searched>,
    tail: Option<&Tail>,
    effort: Effort,
) -> Result<Vec<(Uuid, f64)>> {
    setting::load_pgvector();
    let segments = searched.map_or(&[][..], |searched| &searched.cover);
    let end = segments.last().map_or(Some(0), |segment| segment.last.checked_add(1));
    // What is packed of the rows that have no index, and from where on.
    let packed = match tail.zip(end) {
        Some((tail, end)) => {
            let (from, most) = (end.max(tail.first), (statement.limit * PACKED).max(LEAST_PACKED));
            tail.nearest(statement.kb_no, from, most.max(effort.ef_search))?.map(|near| (from, near))
        }
        None => None,
    };
    let all = segments.iter().map(|segment| segment.rows).sum();
    let mut found = Vec::new();
    let mut shallow = Vec::new();
    let mut rests = statement.rests(searched, packed.as_ref().map(|(from, _)| *from));
    for segment in segments {
        let ef_search = ef_search::of_segment(segment, effort.ef_search, statement.limit, all);
        // What has no index is read with the first.
        let mut parts = vec![statement.indexed(segment)];
        parts.append(&mut rests);
        let row = |row: &spi::Row| Ok(((row.uuid(0)?, row.get::<f64>(1)?), row.get::<bool>(2)?));
        let sql = parts.join(" UNION ALL ");
        let rows = Effort { ef_search, ..effort }.read(&sql, statement.arguments, row)?;
        let own: Vec<f64> = rows.iter().filter(|(_, is_own)| *is_own).map(|((_, far), _)| *far).collect();
        if own.len() < statement.limit && !effort.is_exhaustive(segment) {
            let farthest = own.into_iter().fold(f64::NEG_INFINITY, f64::max);
            shallow.push((segment, ef_search, farthest));
        }
        found.extend(rows.into_iter().map(|(pair, _)| pair));
    }
    if !rests.is_empty() {
        found.extend(statement.read_rests(&rests)?);
    }
    if let (Some((from, near)), Some(tail)) = (packed, tail) {
        statement.add_packed(&mut found, tail, from, near)?;
    }
    statement.keep_nearest(&mut found);
    if let Some(&(_, farthest)) = found.last()
        && found.len() == statement.limit
    {
        for (segment, ef_search, seen) in shallow {
            if seen < farthest
                && let Some(reach) = statement.reach(segment, ef_search)?
            {
                found.retain(|(_, distance)| *distance <= reach);
            }
        }
    }
    Ok(found)
}

/// pgvector ends a scan that has taken work_mem times this (hnsw.scan_mem_multiplier); up to so many visits only these end it. A
/// vector that it has visited takes some 250 bytes, so that it keeps 5 MB.
const MEMORY: (usize, &CStr) = (20_000, c"1000");

impl Effort {
    /// Whether a scan gives all of a segment that qualifies, where there is less than was asked for. How many rows a segment has is
    /// known about, or (0) not at all: after pg_upgrade, or where ANALYZE has met none of a small one's.
    fn is_exhaustive(self, segment: &Segment) -> bool {
        self.visits <= MEMORY.0 && segment.rows > 0 && segment.rows * 2 <= self.visits as u64
    }

    fn read<T>(
        self,
        sql: &str,
        arguments: &[Arg],
        row: impl FnMut(&spi::Row) -> Result<T>,
    ) -> Result<Vec<T>> {
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
        // How many vectors the scan visits is decided already (retrieve/plan.rs).
        let read = || setting::with(IN_ORDER, || spi::read(sql, arguments, row));
        setting::with(&settings, || setting::with(BY_INDEX_UNPLANNED, read))
    }
}

impl Statement<'_> {
    /// The nearest of a segment that pass.
    fn indexed(&self, segment: &Segment) -> String {
        let Statement { table, distance, passes, limit, .. } = self;
        let and = if passes.is_empty() { "" } else { " AND " };
        format!(
            "(SELECT v.chunk_id, {distance}, true FROM {table} v
              WHERE {}{and}{passes} ORDER BY {distance} LIMIT {limit})",
            self.of(segment)
        )
    }

    /// What lies between and behind the segments, up to where all is `packed`, each as a part of a statement. Only the index on
    /// segment fits. Rows are looked up for the filter from the nearest on. At rest nothing lies behind them, and less is to be started.
    fn rests(&self, searched: Option<&Searched>, packed: Option<i32>) -> Vec<String> {
        let segments = searched.map_or(&[][..], |searched| &searched.cover);
        let rest = |part| {
            let Part::Rest { first, last } = part else { return None };
            let is_empty = |index| last == i32::MAX && !probe::may_reach(self.table_name, index, first);
            if searched.and_then(|searched| searched.by_number).is_some_and(is_empty) {
                return None;
            }
            let last = packed.map_or(last, |packed| last.min(packed - 1));
            (first <= last).then(|| self.rest(first, last))
        };
        parts(segments).into_iter().filter_map(rest).collect()
    }

    /// The nearest of a range without an index that pass.
    fn rest(&self, first: i32, last: i32) -> String {
        let Statement { table, distance, build, passes, limit, .. } = self;
        let passing = if passes.is_empty() { String::new() } else { format!("WHERE {passes}") };
        format!(
            "(SELECT v.chunk_id, v.distance, false FROM (
                  SELECT v.chunk_id, v.build_no, ({distance}) + 0 AS distance FROM {table} v
                  WHERE v.build_no + 0 = {build} AND {} ORDER BY ({distance}) + 0 OFFSET 0) v
              {passing} LIMIT {limit})",
            condition_of("v.", first, last)
        )
    }

    fn read_rests(&self, rests: &[String]) -> Result<Vec<(Uuid, f64)>> {
        let row = |row: &spi::Row| Ok((row.uuid(0)?, row.get::<f64>(1)?));
        let read = || spi::read(&rests.join(" UNION ALL "), self.arguments, row);
        setting::with(BY_INDEX_UNPLANNED, read)
    }

    /// In order, each once, as many as are wanted.
    fn keep_nearest(&self, found: &mut Vec<(Uuid, f64)>) {
        found.sort_by(|(a_id, a), (b_id, b)| a.total_cmp(b).then(a_id.cmp(b_id)));
        found.dedup_by_key(|(chunk_id, _)| *chunk_id);
        found.truncate(self.limit);
    }

    /// Adds those that pass and are nearer than what was found, of the chunks that are packed from number `from` on; `near`: which of
    /// these may be nearest. Where a filter leaves out many of them, more are asked for: what is farther than enough others are is not
    /// looked up.
    fn add_packed(
        &self,
        found: &mut Vec<(Uuid, f64)>,
        tail: &Tail,
        from: i32,
        (mut near, mut left_out): Near,
    ) -> Result<()> {
        let (mut next, mut most) = (0, 2 * self.limit + 16);
        loop {
            self.keep_nearest(found);
            let farthest = match found.last() {
                Some((_, distance)) if found.len() == self.limit => *distance,
                _ => f64::INFINITY,
            };
            let end = near.partition_point(|(bound, _)| *bound <= farthest);
            if next >= end {
                if end < near.len() || left_out >= farthest {
                    return Ok(());
                }
                let Some(further) = tail.nearest(self.kb_no, from, near.len() * FURTHER)? else {
                    found.extend(self.read_rests(&[self.rest(from, i32::MAX)])?);
                    return Ok(());
                };
                // Equal ones may be there that were left out.
                next = further.0.partition_point(|(bound, _)| *bound < left_out);
                (near, left_out) = further;
                continue;
            }
            let batch = &near[next..end.min(next + most)];
            found.extend(self.compare(batch)?);
            next += batch.len();
            most *= 2;
        }
    }

    /// The distances of these chunks that pass.
    fn compare(&self, near: &[(f64, Uuid)]) -> Result<Vec<(Uuid, f64)>> {
        let Statement { table, distance, build, passes, arguments, .. } = self;
        let ids: Vec<Uuid> = near.iter().map(|(_, chunk_id)| *chunk_id).collect();
        let arguments: Vec<Arg> = arguments.iter().copied().chain([Arg::Uuids(&ids)]).collect();
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
        let own = self.arguments.get(..2).unwrap_or_default();
        // A policy would hide which of them are other tenants'. All that becomes of it is whether others are looked at, too.
        let found = as_owner(|| Effort { ef_search, visits: 0 }.read(&sql, own, row))?;
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
