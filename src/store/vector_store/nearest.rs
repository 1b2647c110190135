//! The nearest vectors of a table.

use super::VectorDb;
use crate::error::Result;
use crate::model::candidate::Found;
use crate::model::vector_db::Scan;
use crate::model::{Candidate, Filter};
use crate::pg::role::as_vector_reader;
use crate::pg::setting;
use crate::pg::spi::{self, Arg};
use crate::store::arguments::Arguments;
use crate::store::filter::condition;
use crate::store::server_catalogs::vector_schema;
use std::ffi::CString;

/// What is looked for among the vectors of a build.
pub struct Search<'a> {
    pub kb_no: i64,
    pub build_no: i64,
    pub vector: &'a [f32],
    /// On the documents.
    pub filter: Option<&'a Filter>,
    /// Chunks at most.
    pub limit: usize,
    pub scan: Scan,
}

pub fn search(vector_db: &VectorDb, search: &Search) -> Result<Vec<Candidate>> {
    let Search { kb_no, build_no, vector, filter, limit, scan } = *search;
    let mut arguments = Arguments::default();
    let schema = vector_schema()?;
    let operator = format!("OPERATOR({schema}.{})", vector_db.metric.operator());
    let distance = format!(
        "v.embedding {operator} ({}::real[])::{}",
        arguments.add(Arg::Floats(vector)),
        vector_db.column_type(&schema)
    );
    let of_build = format!("v.build_no = {}", arguments.add(Arg::Long(build_no)));
    let filtered = filter.map_or(String::new(), |filter| {
        let of_kb = arguments.add(Arg::Long(kb_no));
        format!("AND d.kb_no = {of_kb} AND {}", condition(filter, &mut arguments))
    });
    let table = vector_db.table();
    let joins = format!(
        "JOIN kb.chunks c ON c.chunk_id = v.chunk_id AND c.build_no = v.build_no AND c.enabled
         JOIN kb.documents d ON d.document_id = c.document_id {filtered}"
    );
    let found = as_vector_reader(|| match scan {
        // Without a filter the index is scanned without joins.
        Scan::Index { ef_search } => {
            let joins = if filter.is_none() { "" } else { joins.as_str() };
            let sql = format!(
                "SELECT v.chunk_id, {distance} FROM {table} v {joins}
                 WHERE {of_build} ORDER BY {distance} LIMIT {limit}"
            );
            setting::load_pgvector();
            let ef_search = CString::new(ef_search.to_string()).unwrap_or_default();
            setting::with(
                &[(c"hnsw.ef_search", &ef_search), (c"hnsw.iterative_scan", c"strict_order")],
                || spi::read(&sql, &arguments.all(), pair),
            )
        }
        // "+ 0" keeps the planner off the index.
        Scan::Exact => spi::read(
            &format!(
                "SELECT v.chunk_id, ({distance}) + 0 FROM {table} v {joins}
                 WHERE {of_build} ORDER BY ({distance}) + 0 LIMIT {limit}"
            ),
            &arguments.all(),
            pair,
        ),
        Scan::ExactDistinct => spi::read(
            &format!(
                "SELECT s.chunk_id, s.distance FROM (
                     SELECT DISTINCT ON (c.content_hash) c.chunk_id, ({distance}) + 0 AS distance
                     FROM {table} v {joins}
                     WHERE {of_build} ORDER BY c.content_hash, c.document_id, c.ordinal) s
                 ORDER BY s.distance LIMIT {limit}"
            ),
            &arguments.all(),
            pair,
        ),
    })?;
    let candidate = |(rank, (chunk_id, distance))| Candidate {
        dense: Some(Found { rank, score: vector_db.metric.score(distance) }),
        ..Candidate::new(chunk_id)
    };
    Ok((1..).zip(found).map(candidate).collect())
}

/// A chunk and its distance.
fn pair(row: &spi::Row) -> Result<(uuid::Uuid, f64)> {
    Ok((row.uuid(0)?, row.get(1)?))
}
