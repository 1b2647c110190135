//! Finding the nearest chunks.

use super::server::vector_schema;
use super::vector_dbs::VectorTable;
use crate::error::{Error, Result};
use crate::model::{Embedder, EmbedderConfig, Hit, Json, Preprocess, Retrieval};
use crate::pg::json::Jsonb;
use crate::pg::role::as_vector_reader;
use crate::pg::setting;
use crate::pg::spi::{self, Arg, Row, quote};
use std::collections::HashMap;
use std::ffi::CString;
use uuid::Uuid;

/// Everything a query needs to know of a knowledge base, read at once.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    pub kb_no: i64,
    pub kb_id: String,
    pub build_no: i64,
    pub retrieval: Retrieval,
    pub preprocess: Preprocess,
    pub embedder: Embedder,
    pub table: VectorTable,
}

/// The knowledge base that the caller means (own tenant's, else a shared one), with its live build.
pub fn target(kb_id: &str) -> Result<Target> {
    let internal = |p: Vec<String>| Error::Internal(format!("stored settings: {}", p.join("; ")));
    spi::read_one(
        "SELECT k.kb_no, b.build_no, k.retrieval, b.preprocess, e.id, e.provider, e.model, e.dimension, e.config,
                b.table_name, b.type, b.metric, b.config, e.base_url
         FROM kb.knowledge_bases k
         JOIN kb.builds b ON b.kb_no = k.kb_no AND b.state = 'live'
         JOIN kb.embedders e ON e.id = b.embedder
         WHERE k.id = $1 AND k.tenant_id = ANY ((SELECT kb.visible_tenants())::text[])
         ORDER BY k.tenant_id = (SELECT kb.current_tenant()) DESC LIMIT 1",
        &[Arg::Text(kb_id)],
        |row| {
            let dimension: i32 = row.get(7)?;
            let (kind, metric): (String, String) = (row.get(10)?, row.get(11)?);
            Ok(Target {
                kb_no: row.get(0)?,
                kb_id: kb_id.to_string(),
                build_no: row.get(1)?,
                retrieval: Retrieval::parse(&row.json(2)?).map_err(internal)?,
                preprocess: Preprocess::parse(&row.json(3)?).map_err(internal)?,
                embedder: Embedder {
                    id: row.get(4)?,
                    provider: row.get(5)?,
                    model: row.get(6)?,
                    dimension: dimension as usize,
                    base_url: row.opt(13)?,
                    config: EmbedderConfig::parse(&row.json(8)?).map_err(internal)?,
                },
                table: VectorTable::from_parts(row.get(9)?, dimension, &kind, &metric, &row.json(12)?)?,
            })
        },
    )?
    .ok_or_else(|| Error::NotFound { what: "knowledge base", id: kb_id.into() })
}

/// How the nearest are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scan {
    /// By the HNSW index if there is one, iterating until enough pass the filter.
    Index { ef_search: usize },
    /// Every row that passes the filter.
    Exact,
    /// As Exact, and equal texts count once.
    ExactDistinct,
}

const COLUMNS: &str = "c.chunk_id, d.external_id, d.title, c.content, c.token_count,
    CASE WHEN c.metadata = '{}' THEN d.metadata ELSE d.metadata || c.metadata END, c.locator,
    d.content_hash IS DISTINCT FROM d.indexed_hash, c.content_hash";

/// A chunk whose vector is near, before it is known whether the caller may read it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    pub chunk_id: Uuid,
    pub score: f64,
}

/// Nearest chunks first, at most `limit`; `filter` is contained in the document's metadata. Vectors are read as a role of
/// kb's own, for callers have no right to: what is found goes through [`hits`].
pub fn nearest(
    target: &Target,
    vector: &[f32],
    filter: Option<&Json>,
    limit: usize,
    scan: Scan,
) -> Result<Vec<Candidate>> {
    let table = quote(&target.table.table_name);
    let schema = vector_schema()?;
    let operator = format!("OPERATOR({schema}.{})", target.table.metric.operator());
    let element = format!("{schema}.{}({})", target.table.element.name(), target.table.dimension);
    let distance = format!("v.embedding {operator} ($1::real[])::{element}");
    let (join, args): (String, Vec<Arg>) = match filter {
        None => (String::new(), vec![Arg::Floats(vector), Arg::Long(target.build_no)]),
        Some(filter) => (
            format!("AND d.kb_no = $4 AND {}", matches(filter, "$3")),
            vec![
                Arg::Floats(vector),
                Arg::Long(target.build_no),
                Arg::JsonText(Some(filter)),
                Arg::Long(target.kb_no),
            ],
        ),
    };
    let rows = |row: &Row| {
        Ok(Candidate { chunk_id: row.uuid(0)?, score: target.table.metric.score(row.get::<f64>(1)?) })
    };
    let joins = format!(
        "JOIN kb.chunks c ON c.chunk_id = v.chunk_id AND c.build_no = v.build_no AND c.enabled
         JOIN kb.documents d ON d.document_id = c.document_id {join}"
    );
    as_vector_reader(|| match scan {
        // Without a filter the index scan stands alone.
        Scan::Index { ef_search } => {
            let joins = if filter.is_none() { "" } else { joins.as_str() };
            let sql = format!(
                "SELECT v.chunk_id, {distance} FROM kb.{table} v {joins}
                 WHERE v.build_no = $2 ORDER BY {distance} LIMIT {limit}"
            );
            setting::load_pgvector();
            let ef_search = CString::new(ef_search.to_string()).unwrap_or_default();
            setting::with(
                &[(c"hnsw.ef_search", &ef_search), (c"hnsw.iterative_scan", c"strict_order")],
                || spi::read(&sql, &args, rows),
            )
        }
        // "+ 0" keeps the planner off the index.
        Scan::Exact => spi::read(
            &format!(
                "SELECT v.chunk_id, ({distance}) + 0 FROM kb.{table} v {joins}
                 WHERE v.build_no = $2 ORDER BY ({distance}) + 0 LIMIT {limit}"
            ),
            &args,
            rows,
        ),
        Scan::ExactDistinct => spi::read(
            &format!(
                "SELECT s.chunk_id, s.distance FROM (
                     SELECT DISTINCT ON (c.content_hash) c.chunk_id, ({distance}) + 0 AS distance
                     FROM kb.{table} v {joins}
                     WHERE v.build_no = $2 ORDER BY c.content_hash, c.document_id, c.ordinal) s
                 ORDER BY s.distance LIMIT {limit}"
            ),
            &args,
            rows,
        ),
    })
}

/// The rows of those candidates that the caller may read, in their order: as the caller, so that every policy on chunks
/// and documents decides.
pub fn hits(target: &Target, candidates: &[Candidate]) -> Result<Vec<Hit>> {
    let ids: Vec<Uuid> = candidates.iter().map(|candidate| candidate.chunk_id).collect();
    let mut found: HashMap<Uuid, Hit> = spi::read(
        &format!(
            "SELECT {COLUMNS} FROM kb.chunks c JOIN kb.documents d ON d.document_id = c.document_id
             WHERE c.build_no = $1 AND c.chunk_id = ANY ($2) AND c.enabled"
        ),
        &[Arg::Long(target.build_no), Arg::Uuids(&ids)],
        |row| hit(row).map(|hit| (hit.chunk_id, hit)),
    )?
    .into_iter()
    .collect();
    let scored = |candidate: &Candidate| {
        Some(Hit { score: Some(candidate.score), ..found.remove(&candidate.chunk_id)? })
    };
    Ok(candidates.iter().filter_map(scored).collect())
}

/// Exact match of all given keys. Containment, which the index serves, is that for plain values, but takes
/// supersets of arrays and objects: those are compared as well.
fn matches(filter: &Json, argument: &str) -> String {
    if filter.is_flat() {
        return format!("d.metadata @> {argument}");
    }
    format!(
        "d.metadata @> {argument} AND NOT EXISTS (SELECT FROM pg_catalog.jsonb_each({argument}) f
             WHERE d.metadata -> f.key IS DISTINCT FROM f.value)"
    )
}

fn hit(row: &Row) -> Result<Hit> {
    Ok(Hit {
        chunk_id: row.uuid(0)?,
        external_id: row.get(1)?,
        title: row.opt(2)?,
        content: row.get(3)?,
        token_count: row.get(4)?,
        metadata: row.get::<Jsonb>(5)?.0,
        locator: row.json(6)?,
        stale: row.get(7)?,
        content_hash: row.get(8)?,
        score: None,
        rank_score: None,
    })
}

/// Chunks that hold words of a question, most and rarest first: full text search, which needs no vector. Their
/// score is unknown; `rank_score` is PostgreSQL's ts_rank, 0 to 1.
pub fn by_keyword(target: &Target, query: &str, filter: Option<&Json>, limit: usize) -> Result<Vec<Hit>> {
    let language = &target.preprocess.language;
    let join = filter.map_or(String::new(), |filter| format!("AND {}", matches(filter, "$5")));
    let mut args =
        vec![Arg::Long(target.build_no), Arg::Long(target.kb_no), Arg::Text(query), Arg::Text(language)];
    args.extend(filter.map(|filter| Arg::JsonText(Some(filter))));
    spi::read(
        &format!(
            "SELECT {COLUMNS}, pg_catalog.ts_rank(c.tsv, q.words, 1 | 32)::float8
             FROM (SELECT pg_catalog.string_agg(pg_catalog.quote_literal(lexeme), ' | ')::tsquery AS words
                   FROM pg_catalog.unnest(pg_catalog.to_tsvector($4::regconfig, $3))) q
             JOIN kb.chunks c ON c.tsv @@ q.words AND c.build_no = $1 AND c.enabled
             JOIN kb.documents d ON d.document_id = c.document_id AND d.kb_no = $2 {join}
             ORDER BY 10 DESC, c.chunk_id LIMIT {limit}"
        ),
        &args,
        |row| Ok(Hit { rank_score: Some(row.get::<f64>(9)?), ..hit(row)? }),
    )
}

/// Chunks that pass a filter, counted up to `most`.
pub fn count_matching(target: &Target, filter: &Json, most: usize) -> Result<usize> {
    let found = spi::read_one(
        &format!(
            "SELECT count(*) FROM (
                 SELECT FROM kb.documents d
                 JOIN kb.chunks c ON c.document_id = d.document_id AND c.build_no = $1
                 WHERE d.kb_no = $2 AND {} LIMIT {most}) t",
            matches(filter, "$3")
        ),
        &[Arg::Long(target.build_no), Arg::Long(target.kb_no), Arg::JsonText(Some(filter))],
        |row| row.get::<i64>(0),
    )?;
    Ok(found.unwrap_or(0) as usize)
}

/// Where else these texts stand: (content hash, chunk id, external id), in document order.
pub fn places(target: &Target, hashes: &[Vec<u8>]) -> Result<Vec<(Vec<u8>, Uuid, String)>> {
    spi::read(
        "SELECT c.content_hash, c.chunk_id, d.external_id FROM kb.chunks c
         JOIN kb.documents d ON d.document_id = c.document_id
         WHERE c.build_no = $1 AND c.content_hash = ANY ($2) AND c.enabled
         ORDER BY d.external_id, c.ordinal",
        &[Arg::Long(target.build_no), Arg::BytesArray(hashes)],
        |row| Ok((row.get(0)?, row.uuid(1)?, row.get(2)?)),
    )
}
