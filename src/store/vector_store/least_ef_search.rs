//! How little an index may be searched with, where nobody has set ef_search: measured once it is built.

use super::VectorDb;
use super::by_index::{self, Effort, Statement};
use super::segments::{self, Searched};
use crate::error::Result;
use crate::model::ef_search;
use crate::pg::spi::{self, Arg};
use crate::store::server_catalogs::vector_schema;
use uuid::Uuid;

/// Vectors that are looked for, and how many of the nearest to each. A search that begins among the wrong ones finds none of them: with
/// fewer vectors such searches, one in a hundred, would often not be seen.
const SAMPLE: usize = 200;
const K: usize = 10;
/// The part that is to be found of what a far wider search finds.
const ENOUGH: f64 = 0.99;
/// So many times as wide.
const WIDER: usize = 10;

/// The least ef_search that finds nearly all of what is nearest to some vectors of a table, without themselves, with the number of
/// the build that it is of; None in its place: none that is less than the default does, or too few vectors were looked at. None in
/// all: the table has no index, or is not that of one build. By the indexer.
pub fn measure(vector_db: &VectorDb) -> Result<Option<(i64, Option<usize>)>> {
    let Some(searched) = segments::searched(vector_db)? else { return Ok(None) };
    let builds = "SELECT b.build_no FROM kb.builds b WHERE b.table_name = $1 AND b.state <> 'old'";
    let builds: Vec<i64> = spi::read(builds, &[Arg::Text(&vector_db.table_name)], |row| row.get(0))?;
    let [build_no] = builds[..] else { return Ok(None) };
    let mut tried = ef_search::less_than_default(searched.vectors).peekable();
    let found = match tried.peek() {
        Some(_) => Probes::new(vector_db, build_no, &searched)?.least(tried)?,
        None => None,
    };
    Ok(Some((build_no, found)))
}

/// Notes what was measured, for those who have set none. In a transaction that has locked nothing, and without waiting for who has
/// locked the build's row: who drops a table would wait for the indexer, and the indexer for it.
pub fn note(build_no: i64, found: Option<usize>) -> Result<()> {
    let sql = "UPDATE kb.builds b SET least_ef_search = $2
               FROM (SELECT o.build_no FROM kb.builds o WHERE o.build_no = $1 FOR NO KEY UPDATE SKIP LOCKED) o
               WHERE b.build_no = o.build_no AND b.least_ef_search IS DISTINCT FROM $2";
    spi::execute(sql, &[Arg::Long(build_no), Arg::LongOrNull(found.map(|ef_search| ef_search as i64))])?;
    Ok(())
}

/// Forgets what was measured before a table has drafts, which find less: then the default for its size holds.
pub fn forget(vector_db: &VectorDb) -> Result<()> {
    spi::execute(
        "UPDATE kb.builds b SET least_ef_search = NULL
         FROM (SELECT o.build_no FROM kb.builds o WHERE o.table_name = $1 AND o.least_ef_search IS NOT NULL
               FOR NO KEY UPDATE SKIP LOCKED) o
         WHERE b.build_no = o.build_no",
        &[Arg::Text(&vector_db.table_name)],
    )?;
    Ok(())
}

/// Vectors of a build, and what is nearest to each.
struct Probes<'a> {
    table: String,
    distance: String,
    build_no: i64,
    searched: &'a Searched,
    vectors: Vec<(Uuid, Vec<f32>)>,
}

impl Probes<'_> {
    fn new<'a>(vector_db: &VectorDb, build_no: i64, searched: &'a Searched) -> Result<Probes<'a>> {
        let (table, schema) = (vector_db.table(), vector_schema()?);
        let operator = format!("OPERATOR({schema}.{})", vector_db.metric.operator());
        // Of pages chosen at random, which hold a few vectors each.
        let part = (100.0 * 20.0 * SAMPLE as f64 / searched.vectors.max(1) as f64).min(100.0);
        let sql = format!(
            "SELECT v.chunk_id, v.embedding::real[] FROM {table} v TABLESAMPLE SYSTEM ($2::real)
             WHERE v.build_no = $1 ORDER BY pg_catalog.random() LIMIT {SAMPLE}"
        );
        let row = |row: &spi::Row| Ok((row.uuid(0)?, row.get::<Vec<f32>>(1)?));
        Ok(Probes {
            vectors: spi::read(&sql, &[Arg::Long(build_no), Arg::Double(part)], row)?,
            distance: format!(
                "v.embedding {operator} (SELECT ($1::real[])::{})",
                vector_db.column_type(&schema)
            ),
            table,
            build_no,
            searched,
        })
    }

    /// The first of these that finds enough.
    fn least(&self, tried: impl Iterator<Item = usize>) -> Result<Option<usize>> {
        // Pages chosen at random may have none: that says nothing.
        if self.vectors.len() < SAMPLE / 2 {
            return Ok(None);
        }
        let wide = (ef_search::default_for(self.searched.vectors) * WIDER).min(ef_search::MOST);
        let nearest =
            self.vectors.iter().map(|probe| self.nearest(probe, wide)).collect::<Result<Vec<_>>>()?;
        let all: usize = nearest.iter().map(Vec::len).sum();
        for ef_search in tried {
            let mut found = 0;
            for (probe, nearest) in self.vectors.iter().zip(&nearest) {
                // Others may be as far away as the last one: each is as good.
                let farthest = nearest.last().copied().unwrap_or(f64::NEG_INFINITY);
                let own = self.nearest(probe, ef_search)?;
                found += own.iter().filter(|distance| **distance <= farthest).count().min(nearest.len());
            }
            if found as f64 >= all as f64 * ENOUGH {
                return Ok(Some(ef_search));
            }
        }
        Ok(None)
    }

    /// The distances of the nearest others, in order.
    fn nearest(&self, (own, vector): &(Uuid, Vec<f32>), ef_search: usize) -> Result<Vec<f64>> {
        let statement = Statement {
            table: &self.table,
            distance: &self.distance,
            build: "$2",
            passes: "",
            arguments: &[Arg::Floats(vector), Arg::Long(self.build_no)],
            limit: K + 1,
        };
        let found = by_index::nearest(&statement, &self.searched.cover, Effort { ef_search, visits: 0 })?;
        Ok(found.into_iter().filter(|(id, _)| id != own).map(|(_, distance)| distance).take(K).collect())
    }
}
