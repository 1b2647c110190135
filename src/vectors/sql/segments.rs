//! Segments in PostgreSQL's catalogs: HNSW indexes, each for a range of numbers.
//!
//! The ranges are read from the predicates of the indexes, so no table of kb could contradict them. A table
//! that several knowledge bases use has no segments. Neither has an unlogged one: a crash empties it and
//! leaves its indexes with their ranges, and since numbers begin at 0 again, all new rows would be inserted
//! into those indexes one by one.

use super::VectorDb;
use crate::pg::spi::{self, Arg, Row};
use crate::pg::table_cache::{self, TableCache};
use crate::pg::txn;
use kb_search::vector_segments;
use kb_search::vector_segments::{Segment, WHOLE};
use kb_types::error::Result;
use std::cell::RefCell;

/// The names of kb's own indexes, with a range and, in an older form, without one. Excludes the remains of
/// REINDEX CONCURRENTLY and the indexes of others.
macro_rules! is_own {
    () => {
        "c.relname ~ '_hnsw(_[0-9]+_[0-9]+(_draft|_m[0-9]+)?)?$'"
    };
}

/// The condition that identifies an HNSW index of kb's own on table t: (t, i, c) are its rows of pg_class,
/// pg_index and pg_class.
const INDEXES: &str = concat!(
    "pg_catalog.pg_class t
     JOIN pg_catalog.pg_index i ON i.indrelid = t.oid
     JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid AND ",
    is_own!(),
    " JOIN pg_catalog.pg_am a ON a.oid = c.relam AND a.amname = 'hnsw'"
);

/// Whether the table of a kb.builds b has a segment with a valid index.
pub const IS_INDEXED: &str = concat!(
    "EXISTS (
     SELECT FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid AND ",
    is_own!(),
    " JOIN pg_catalog.pg_am a ON a.oid = c.relam AND a.amname = 'hnsw'
     WHERE i.indisvalid AND i.indrelid = pg_catalog.to_regclass(pg_catalog.format('kb.%I', b.table_name))::oid)"
);

/// An HNSW index of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Index {
    pub name: String,
    pub segment: Segment,
    pub is_valid: bool,
}

/// All indexes of a table, including invalid ones.
pub fn indexes(vector_db: &VectorDb) -> Result<Vec<Index>> {
    let sql = format!(
        "SELECT c.relname::text AS name, pg_catalog.pg_get_expr(i.indpred, i.indrelid) AS predicate,
             c.reltuples::float8 AS rows, i.indisvalid AS is_valid,
             (SELECT o.option_value::integer FROM pg_catalog.pg_options_to_table(c.reloptions) o
              WHERE o.option_name = 'ef_construction') AS ef_construction
         FROM {INDEXES}
         WHERE t.oid = pg_catalog.to_regclass('kb.' || pg_catalog.quote_ident($1))::oid"
    );
    let found = spi::read(&sql, &[Arg::Text(&vector_db.table_name)], |row| {
        let predicate: Option<String> = row.get("predicate")?;
        let range = predicate.as_deref().map_or(Some(WHOLE), range_of);
        let rows = row.get::<f64>("rows")?.max(0.0) as u64;
        let ef_construction: Option<usize> = row.get("ef_construction")?;
        let is_draft = ef_construction.is_some_and(|ef| ef < vector_db.config.ef_construction);
        let segment = range.map(|(first, last)| Segment { first, last, rows, is_draft });
        Ok((row.get("name")?, segment, row.get("is_valid")?))
    })?;
    let index = |(name, segment, is_valid)| Some(Index { name, segment: segment?, is_valid });
    Ok(found.into_iter().filter_map(index).collect())
}

thread_local! {
    /// By the name of the table.
    static SEARCHED: RefCell<TableCache<String, Option<Searched>>> = RefCell::default();
}

/// The segments that a search uses, and the approximate number of vectors in the table. Returns None if no
/// index is valid. PostgreSQL marks an index as valid when it is valid for every snapshot, because its build
/// has waited for older ones.
pub fn searched(vector_db: &VectorDb) -> Result<Option<Searched>> {
    // A parallel process cannot take a newer snapshot than the statement's, and an answer under that one must
    // not be kept.
    if txn::is_parallel() {
        return read_searched(vector_db);
    }
    table_cache::try_get(&SEARCHED, &vector_db.table_name, || {
        table_cache::depends_on(&vector_db.table_name);
        txn::with_latest_snapshot(|| read_searched(vector_db))
    })
}

fn read_searched(vector_db: &VectorDb) -> Result<Option<Searched>> {
    let valid = indexes(vector_db)?.into_iter().filter(|index| index.is_valid);
    let cover = vector_segments::cover(valid.map(|index| index.segment).collect());
    if cover.is_empty() {
        return Ok(None);
    }
    let sql = "SELECT t.reltuples::float8 AS rows,
                   (SELECT i.indexrelid::bigint FROM pg_catalog.pg_index i
                    JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
                    JOIN pg_catalog.pg_am m ON m.oid = c.relam AND m.amname = 'btree'
                    JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] AND a.attname = 'segment'
                    WHERE i.indrelid = t.oid AND i.indisvalid AND i.indpred IS NULL AND i.indnatts = 1 LIMIT 1) AS by_number
               FROM pg_catalog.pg_class t
               WHERE t.oid = pg_catalog.to_regclass('kb.' || pg_catalog.quote_ident($1))::oid";
    let row = |row: &Row| Ok((row.get::<f64>("rows")?, row.get::<Option<u32>>("by_number")?));
    let (rows, by_number) =
        spi::read_one(sql, &[Arg::Text(&vector_db.table_name)], row)?.unwrap_or((0.0, None));
    let largest = cover.iter().map(|segment| segment.rows).max().unwrap_or(0);
    let vectors = (rows.max(0.0) as u64).max(largest) as usize;
    Ok(Some(Searched { vectors, cover, by_number }))
}

/// What a search by index reads.
#[derive(Debug, Clone, PartialEq)]
pub struct Searched {
    /// The approximate number of vectors of all builds.
    pub vectors: usize,
    pub cover: Vec<Segment>,
    /// The oid of the index on the numbers of rows.
    pub(super) by_number: Option<u32>,
}

/// The first and last number in the predicate of an index, as PostgreSQL prints it. Returns None for any
/// other predicate.
pub fn range_of(predicate: &str) -> Option<(i32, i32)> {
    let numbers = predicate.strip_prefix("((segment >= ")?.strip_suffix("))")?;
    let (first, last) = numbers.split_once(") AND (segment <= ")?;
    Some((first.parse().ok()?, last.parse().ok()?))
}

/// The predicate of an index for this range.
pub fn condition(alias: &str, first: i32, last: i32) -> String {
    format!("{alias}segment >= {first} AND {alias}segment <= {last}")
}

/// The number for rows that are now written for a build, as an expression; `build` is an argument of the
/// statement. It is above the numbers of all existing rows and, in a build's own table, above all that
/// existed when an index was last created, so no index has the row. (In a table of several builds an index
/// has it if the newest rows of a segment were deleted.)
pub fn new_number(table: &str, build: &str) -> String {
    format!(
        "(SELECT greatest(coalesce(pg_catalog.max(s.segment), -1) + 1,
                          (SELECT t.first FROM kb.tails t WHERE t.build_no = {build})) FROM {table} s)"
    )
}

/// The number of rows with numbers above `last`, counted up to `most`, and the largest number of all. Returns
/// None if the table is empty.
pub fn behind(vector_db: &VectorDb, last: i32, most: u64) -> Result<Option<(u64, i32)>> {
    let table = vector_db.table();
    let sql = format!(
        "SELECT (SELECT count(*) FROM (SELECT FROM {table} v WHERE v.segment > $1 LIMIT $2) r) AS rows,
                (SELECT pg_catalog.max(v.segment) FROM {table} v) AS last"
    );
    let row = |row: &Row| Ok((row.get::<i64>("rows")? as u64, row.get::<Option<i32>>("last")?));
    let found = spi::write_one(&sql, &[Arg::Int(last), Arg::Long(most as i64)], row)?;
    Ok(found.and_then(|(rows, last)| Some((rows, last?))))
}

/// The number of the `rows`-th row, or of the last one, with a number above `last`. Returns None if there is
/// no such row.
pub fn number_behind(vector_db: &VectorDb, last: i32, rows: u64) -> Result<Option<i32>> {
    let sql = format!(
        "SELECT pg_catalog.max(r.segment)
         FROM (SELECT v.segment FROM {} v WHERE v.segment > $1 ORDER BY v.segment LIMIT $2) r",
        vector_db.table()
    );
    let found = spi::write_one(&sql, &[Arg::Int(last), Arg::Long(rows as i64)], Row::only::<Option<i32>>)?;
    Ok(found.flatten())
}

/// The number of segments of a table, and the number of rows behind them, counted up to `most`. This uses an
/// index, however many rows there are. For the worker.
pub fn unindexed(vector_db: &VectorDb, most: u64) -> Result<(usize, u64)> {
    let cover = searched(vector_db)?.map(|searched| searched.cover).unwrap_or_default();
    let end = cover.last().map_or(-1, |segment| segment.last);
    let rows = behind(vector_db, end, most)?.map_or(0, |(rows, _)| rows);
    Ok((cover.len(), rows))
}

/// The number of segments of a build's table, and the number of the build's vectors that no index has.
/// Otherwise like [`super::count`].
pub fn state(vector_db: &VectorDb, build_no: i64) -> Result<(i64, i64)> {
    let cover = searched(vector_db)?.map(|searched| searched.cover).unwrap_or_default();
    let is_indexed =
        cover.iter().map(|Segment { first, last, .. }| format!("({})", condition("v.", *first, *last)));
    let is_indexed = is_indexed.collect::<Vec<_>>().join(" OR ");
    let sql = match is_indexed.as_str() {
        "" => format!("SELECT count(*) FROM {} v WHERE v.build_no = $1", vector_db.table()),
        _ => format!(
            "SELECT count(*) FROM {} v WHERE v.build_no = $1 AND NOT ({is_indexed})",
            vector_db.table()
        ),
    };
    let count = spi::read_one(&sql, &[Arg::Long(build_no)], Row::only::<i64>)?;
    Ok((cover.len() as i64, count.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_read_as_postgresql_writes_it() {
        assert_eq!(range_of("((segment >= 0) AND (segment <= 12))"), Some((0, 12)));
        assert_eq!(range_of("((segment >= 0) AND (segment <= 12) AND (build_no = 1))"), None);
        assert_eq!(range_of("(build_no = 1)"), None);
    }
}
