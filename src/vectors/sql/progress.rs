//! The progress of an index build on a vector table, for kb.status.

use super::VectorDb;
use super::own_table::IS_SHARED;
use super::segments::{indexes, range_of};
use crate::pg::row::from_row;
use crate::pg::spi::{self, Arg, FromRow};
use kb_search::vector_segments::{Segment, cover};
use kb_types::error::Result;

/// An index that is being built.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexProgress {
    /// Whether it replaces existing segments.
    pub is_merge: bool,
    /// The name of the phase in pg_stat_progress_create_index.
    pub phase: String,
    /// The part of the vectors that the index has, from 0 to 1. None: it is not known, or the indexer is
    /// waiting or validating the index.
    pub done: Option<f64>,
}

from_row! {
    /// The counters of pg_stat_progress_create_index for a build.
    struct Counters {
        phase: String,
        tuples_done: i64,
        blocks_done: i64,
        blocks_total: i64,
        predicate: Option<String>,
    }
}

/// The index that is being built on the table of a build. Returns None also if other knowledge bases use that
/// table, because the progress would reveal something about their vectors. Must run as the owner, because the
/// progress of other roles' processes is hidden otherwise. Works on a standby.
pub fn of(vector_db: &VectorDb, build_no: i64) -> Result<Option<IndexProgress>> {
    let sql = format!(
        "SELECT p.phase, p.tuples_done, p.blocks_done, p.blocks_total,
             pg_catalog.pg_get_expr(i.indpred, i.indrelid) AS predicate
         FROM pg_catalog.pg_stat_progress_create_index p
         JOIN pg_catalog.pg_stat_activity a ON a.pid = p.pid AND a.backend_type = 'kb indexer'
         JOIN pg_catalog.pg_index i ON i.indexrelid = p.index_relid
         JOIN kb.builds b ON b.build_no = $2 AND NOT {IS_SHARED}
         WHERE p.datname = pg_catalog.current_database()
           AND p.relid = pg_catalog.to_regclass('kb.' || pg_catalog.quote_ident($1))::oid"
    );
    let arguments = [Arg::Text(&vector_db.table_name), Arg::Long(build_no)];
    let found = spi::read_one(&sql, &arguments, Counters::from_row)?;
    let Some(counters) = found else { return Ok(None) };
    let Some((first, last)) = counters.predicate.as_deref().and_then(range_of) else { return Ok(None) };
    let valid = indexes(vector_db)?.into_iter().filter(|index| index.is_valid);
    let mut replaced = cover(valid.map(|index| index.segment).collect());
    replaced.retain(|segment| (first..=last).contains(&segment.first));
    let done = match counters.phase.starts_with("building index") {
        false => None,
        // The index covers all rows of the table, which need not be counted.
        true if first == 0 && replaced.iter().all(Segment::is_whole) => {
            part(counters.blocks_done, counters.blocks_total)
        }
        true => {
            let rows: u64 = replaced.iter().map(|segment| segment.rows).sum();
            let end = replaced.last().map_or(first - 1, |segment| segment.last);
            part(counters.tuples_done, rows as i64 + rows_between(vector_db, end, last)?)
        }
    };
    Ok(Some(IndexProgress { is_merge: !replaced.is_empty(), phase: counters.phase, done }))
}

/// Rounded to hundredths: more digits would reveal the number of vectors.
fn part(done: i64, all: i64) -> Option<f64> {
    (all > 0).then(|| (done as f64 / all as f64 * 100.0).round().min(100.0) / 100.0)
}

/// The number of rows with numbers above `end`, up to `last`.
fn rows_between(vector_db: &VectorDb, end: i32, last: i32) -> Result<i64> {
    let sql =
        format!("SELECT count(*) FROM {} v WHERE v.segment > $1 AND v.segment <= $2", vector_db.table());
    spi::read_value(&sql, &[Arg::Int(end), Arg::Int(last)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_from_0_to_1_however_wrong_the_estimate_and_unknown_of_nothing() {
        assert_eq!((part(0, 7), part(1, 3), part(7, 7)), (Some(0.0), Some(0.33), Some(1.0)));
        assert_eq!((part(9, 7), part(3, 0)), (Some(1.0), None));
    }
}
