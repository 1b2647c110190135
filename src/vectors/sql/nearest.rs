//! The nearest vectors of a table.

use super::tail::Tail;
use super::{Searched, VectorDb};
use crate::filters::filter::condition;
use crate::pg::role::as_vector_reader;
use crate::pg::setting;
use crate::pg::spi::{self, Arg, Row};
use crate::pg::statement_arguments::Arguments;
use crate::sql::BY_INDEX_UNPLANNED;
use crate::sql::server_catalogs::vector_schema;
use crate::vectors::sql::search_by_index;
use kb_types::candidate::Found;
use kb_types::error::Result;
use kb_types::vector_db::{Metric, Scan as Way};
use kb_types::{Candidate, Filter};
use std::collections::HashMap;
use uuid::Uuid;

/// What to search for among the vectors of a build.
pub struct VectorSearch<'a> {
    pub kb_no: i64,
    pub build_no: i64,
    pub vector: &'a [f32],
    /// A filter on the documents.
    pub filter: Option<&'a Filter>,
    /// All chunks that pass the filter, if they are few enough to be listed; for the exact scans.
    pub among: Option<&'a [Uuid]>,
    /// The most chunks to return; an approximate number if the index is searched.
    pub limit: usize,
    pub scan: Way,
}

/// Up to this many listed chunks, their vectors are looked up one by one.
const FEW: usize = 1000;

/// A running search. It must not outlive the statement that started it.
pub struct Scan<'a> {
    metric: Metric,
    source: ScanRows<'a>,
}

enum ScanRows<'a> {
    /// All rows that were found, in reverse order.
    Found(Vec<(Uuid, f64)>),
    ByIndex(Box<search_by_index::IndexScan<'a>>),
}

impl Scan<'_> {
    /// The next chunks, the nearest first. If there are fewer than `count`, there are no others.
    pub fn next(&mut self, count: usize) -> Result<Vec<Candidate>> {
        let found = match &mut self.source {
            ScanRows::Found(rest) => {
                let mut next = rest.split_off(rest.len().saturating_sub(count));
                next.reverse();
                next
            }
            ScanRows::ByIndex(scan) => as_vector_reader(|| scan.next(count))?,
        };
        let candidate = |(rank, (chunk_id, distance))| Candidate {
            dense: Some(Found { rank, score: self.metric.score(distance) }),
            ..Candidate::new(chunk_id)
        };
        Ok((1..).zip(found).map(candidate).collect())
    }
}

/// Begins a search. A search by an index continues as long as more rows are wanted; others end after
/// [`VectorSearch::limit`].
pub fn open<'a>(
    vector_db: &VectorDb,
    search: &VectorSearch<'a>,
    searched: Option<&Searched>,
) -> Result<Scan<'a>> {
    let VectorSearch { kb_no, build_no, vector, filter, among, limit, scan } = *search;
    let mut arguments = Arguments::default();
    let schema = vector_schema()?;
    let operator = format!("OPERATOR({schema}.{})", vector_db.metric.operator());
    // A subquery, so that the question is converted once and not for each row.
    let distance = format!(
        "v.embedding {operator} (SELECT ({}::real[])::{})",
        arguments.add(Arg::Floats(vector)),
        vector_db.column_type(&schema)
    );
    let build = arguments.add(Arg::Long(build_no));
    let mut of_build = format!("v.build_no = {build}");
    let mut passes = String::new();
    let mut joins =
        String::from("JOIN kb.chunks c ON c.chunk_id = v.chunk_id AND c.build_no = v.build_no AND c.enabled");
    match (among, filter) {
        // These are enabled chunks of documents that pass.
        (Some(among), _) => {
            of_build.push_str(&format!(" AND v.chunk_id = ANY ({})", arguments.add(Arg::Uuids(among))));
            if scan == Way::Exact {
                joins.clear();
            }
        }
        (None, Some(filter)) => {
            let of_kb = arguments.add(Arg::Long(kb_no));
            let condition = condition(filter, &mut arguments);
            let document = format!("kb.documents d ON d.document_id = c.document_id AND d.kb_no = {of_kb}");
            match scan {
                // A subquery for each vector that the index returns. The planner cannot estimate how many
                // rows a condition on jsonb keeps under row-level security, and if it expects few it would
                // join all chunks before the first row.
                Way::Index { .. } => passes.push_str(&format!(
                    "(SELECT {condition} FROM kb.chunks c JOIN {document}
                      WHERE c.chunk_id = v.chunk_id AND c.build_no = v.build_no AND c.enabled)"
                )),
                Way::Exact | Way::ExactDistinct => {
                    joins.push_str(&format!(" JOIN {document} AND {condition}"))
                }
            }
        }
        (None, None) => joins.push_str(" JOIN kb.documents d ON d.document_id = c.document_id"),
    }
    let table = vector_db.table();
    let tail = match scan {
        Way::Index { .. } => Tail::of(vector_db, build_no, vector),
        Way::Exact | Way::ExactDistinct => None,
    };
    let metric = vector_db.metric;
    if let Way::Index { ef_search, visits } = scan
        && (searched.is_some() || tail.is_some())
    {
        let table_name = vector_db.table_name.clone();
        let statement =
            search_by_index::Statement { table, table_name, kb_no, distance, build, passes, arguments };
        let effort = search_by_index::Effort { ef_search, visits };
        let begin = || search_by_index::IndexScan::open(statement, searched, tail, effort, limit);
        return Ok(Scan { metric, source: ScanRows::ByIndex(Box::new(as_vector_reader(begin)?)) });
    }
    let mut found = as_vector_reader(|| match scan {
        // Without an index all vectors are compared; in a table of many builds, only those of this build are
        // read.
        Way::Index { .. } => {
            let passes = if passes.is_empty() { String::new() } else { format!(" AND {passes}") };
            let sql = format!(
                "SELECT v.chunk_id, ({distance}) + 0 AS distance FROM {table} v
                 WHERE {of_build}{passes} ORDER BY ({distance}) + 0, v.chunk_id LIMIT {limit}"
            );
            spi::read_much(&sql, &arguments.all(), pair)
        }
        // "+ 0" keeps the planner from using the index.
        Way::Exact => {
            let sql = format!(
                "SELECT v.chunk_id, ({distance}) + 0 AS distance FROM {table} v {joins}
                 WHERE {of_build} ORDER BY ({distance}) + 0, v.chunk_id LIMIT {limit}"
            );
            match among {
                Some(among) if among.len() <= FEW => {
                    setting::with(BY_INDEX_UNPLANNED, || spi::read(&sql, &arguments.all(), pair))
                }
                // Another text, because a plan is kept for each text.
                _ => spi::read_much(&format!("{sql} OFFSET 0"), &arguments.all(), pair),
            }
        }
        Way::ExactDistinct => spi::read_much(
            &format!(
                "SELECT s.chunk_id, s.distance FROM (
                     SELECT DISTINCT ON (c.content_hash) c.chunk_id, ({distance}) + 0 AS distance
                     FROM {table} v {joins}
                     WHERE {of_build} ORDER BY c.content_hash, ({distance}) + 0, c.chunk_id) s
                 ORDER BY s.distance, s.chunk_id LIMIT {limit}"
            ),
            &arguments.all(),
            pair,
        ),
    })?;
    found.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    Ok(Scan { metric, source: ScanRows::Found(found) })
}

/// The similarity of a vector to the vectors of chunks. Chunks without a vector are left out.
pub fn similarities(
    vector_db: &VectorDb,
    build_no: i64,
    vector: &[f32],
    chunk_ids: &[Uuid],
) -> Result<HashMap<Uuid, f64>> {
    let schema = vector_schema()?;
    let sql = format!(
        "SELECT v.chunk_id, v.embedding OPERATOR({schema}.{}) ($3::real[])::{} AS distance
         FROM {} v WHERE v.build_no = $1 AND v.chunk_id = ANY ($2)",
        vector_db.metric.operator(),
        vector_db.column_type(&schema),
        vector_db.table()
    );
    let arguments = [Arg::Long(build_no), Arg::Uuids(chunk_ids), Arg::Floats(vector)];
    let found = as_vector_reader(|| spi::read(&sql, &arguments, pair))?;
    Ok(found.into_iter().map(|(chunk_id, distance)| (chunk_id, vector_db.metric.score(distance))).collect())
}

/// The vectors of chunks that the caller may read. Chunks without a vector are left out.
pub fn vectors(vector_db: &VectorDb, build_no: i64, chunk_ids: &[Uuid]) -> Result<HashMap<Uuid, Vec<f32>>> {
    as_vector_reader(|| all_vectors(vector_db, build_no, chunk_ids))
}

/// The vectors of chunks, for the worker. Chunks without a vector are left out.
pub fn all_vectors(
    vector_db: &VectorDb,
    build_no: i64,
    chunk_ids: &[Uuid],
) -> Result<HashMap<Uuid, Vec<f32>>> {
    let sql = format!(
        "SELECT v.chunk_id, v.embedding::real[] AS vector FROM {} v WHERE v.build_no = $1 AND v.chunk_id = ANY ($2)",
        vector_db.table()
    );
    let arguments = [Arg::Long(build_no), Arg::Uuids(chunk_ids)];
    let read = |row: &Row| Ok((row.get("chunk_id")?, row.get::<Vec<f32>>("vector")?));
    Ok(spi::read(&sql, &arguments, read)?.into_iter().collect())
}

/// A chunk and its distance.
pub fn pair(row: &Row) -> Result<(Uuid, f64)> {
    Ok((row.get("chunk_id")?, row.get("distance")?))
}
