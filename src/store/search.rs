//! What a query reads besides vectors: the knowledge base it is about, the rows of chunks, words.

use super::arguments::Arguments;
use super::filter::condition;
use super::knowledge_bases::Meant;
use super::vector_store::VectorDb;
use crate::error::{Error, Object, Result};
use crate::model::candidate::{ChunkRow, Found};
use crate::model::{Candidate, Embedder, EmbedderConfig, Filter, Preprocess, Retrieval};
use crate::pg::json::Jsonb;
use crate::pg::spi::{self, Arg, Row};
use std::collections::HashMap;
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
    pub vector_db: VectorDb,
    /// Whether the vectors can be read; not where a restore has left the rights out, until the worker has come.
    pub is_readable: bool,
}

/// The knowledge base that the caller means, with its live build.
pub fn target(kb_id: &str) -> Result<Target> {
    let internal = |p: Vec<String>| Error::Internal(format!("stored settings: {}", p.join("; ")));
    let meant = Meant::of_session()?;
    spi::read_one(
        &format!(
            "SELECT k.kb_no, b.build_no, k.retrieval, b.preprocess, e.id, e.provider, e.model, e.dimension, e.config,
                    e.base_url, {}, {}
             FROM kb.knowledge_bases k
             JOIN kb.builds b ON b.kb_no = k.kb_no AND b.state = 'live'
             JOIN kb.embedders e ON e.id = b.embedder
             {}",
            VectorDb::columns("b"),
            VectorDb::readable("b"),
            meant.condition()
        ),
        &meant.arguments(kb_id),
        |row| {
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
                    dimension: row.get::<i32>(7)? as usize,
                    base_url: row.opt(9)?,
                    config: EmbedderConfig::parse(&row.json(8)?).map_err(internal)?,
                },
                vector_db: VectorDb::read(row, 10)?,
                is_readable: row.opt::<bool>(15)? != Some(false),
            })
        },
    )?
    .ok_or_else(|| Error::NotFound { what: Object::KnowledgeBase, id: kb_id.into() })
}

/// The columns that [`chunk_row`] reads, after the chunk's id.
const COLUMNS: &str = "c.chunk_id, d.external_id, d.title, c.content, c.token_count,
    CASE WHEN c.metadata = '{}' THEN d.metadata ELSE d.metadata || c.metadata END, c.locator,
    d.content_hash IS DISTINCT FROM d.indexed_hash, c.content_hash, d.source_no, d.tenant_id";

/// The source of a row of an attached table and the document's tenant, in two columns from this one on.
fn source(row: &Row, column: usize) -> Result<Option<(i64, String)>> {
    match row.opt(column)? {
        Some(source_no) => Ok(Some((source_no, row.get(column + 1)?))),
        None => Ok(None),
    }
}

fn chunk_row(row: &Row) -> Result<ChunkRow> {
    Ok(ChunkRow {
        external_id: row.get(1)?,
        title: row.opt(2)?,
        content: row.get(3)?,
        token_count: row.get(4)?,
        metadata: row.get::<Jsonb>(5)?.0,
        locator: row.json(6)?,
        stale: row.get(7)?,
        content_hash: row.get(8)?,
        source: source(row, 9)?,
    })
}

/// Those candidates that the caller may read, with their rows, in their order: as the caller, so that every policy on
/// chunks and documents decides.
pub fn read(target: &Target, candidates: Vec<Candidate>) -> Result<Vec<Candidate>> {
    let ids: Vec<Uuid> = candidates.iter().map(|candidate| candidate.chunk_id).collect();
    let mut arguments = Arguments::default();
    let (build_no, ids) = (arguments.add(Arg::Long(target.build_no)), arguments.add(Arg::Uuids(&ids)));
    let mut found: HashMap<Uuid, ChunkRow> = spi::read(
        &format!(
            "SELECT {COLUMNS} FROM kb.chunks c JOIN kb.documents d ON d.document_id = c.document_id
             WHERE c.build_no = {build_no} AND c.chunk_id = ANY ({ids}) AND c.enabled"
        ),
        &arguments.all(),
        |row| Ok((row.uuid(0)?, chunk_row(row)?)),
    )?
    .into_iter()
    .collect();
    let with_row = |candidate: Candidate| {
        let row = found.remove(&candidate.chunk_id)?;
        Some(Candidate { row: Some(row), ..candidate })
    };
    Ok(candidates.into_iter().filter_map(with_row).collect())
}

/// Chunks that hold words of a question, the best rank first, with their rows: full text search, which needs no vector.
pub fn by_keyword(
    target: &Target,
    query: &str,
    filter: Option<&Filter>,
    limit: usize,
) -> Result<Vec<Candidate>> {
    let mut arguments = Arguments::default();
    let build_no = arguments.add(Arg::Long(target.build_no));
    let kb_no = arguments.add(Arg::Long(target.kb_no));
    let query = arguments.add(Arg::Text(query));
    let language = arguments.add(Arg::Text(&target.preprocess.language));
    let filtered =
        filter.map_or(String::new(), |filter| format!("AND {}", condition(filter, &mut arguments)));
    // Lexemes are quoted as tsquery reads them, which takes no E'…' of quote_literal.
    let found = spi::read(
        &format!(
            "SELECT {COLUMNS}, pg_catalog.ts_rank(c.tsv, q.words, 1 | 32)::float8
             FROM (SELECT pg_catalog.string_agg('''' || pg_catalog.replace(
                       pg_catalog.replace(lexeme, '\\', '\\\\'), '''', '''''') || '''', ' | ')::tsquery AS words
                   FROM pg_catalog.unnest(pg_catalog.to_tsvector({language}::regconfig, {query}))) q
             JOIN kb.chunks c ON c.tsv @@ q.words AND c.build_no = {build_no} AND c.enabled
             JOIN kb.documents d ON d.document_id = c.document_id AND d.kb_no = {kb_no} {filtered}
             ORDER BY 12 DESC, c.chunk_id LIMIT {limit}"
        ),
        &arguments.all(),
        |row| Ok((row.uuid(0)?, chunk_row(row)?, row.get::<f64>(11)?)),
    )?;
    let candidate = |(rank, (chunk_id, row, score))| Candidate {
        keyword: Some(Found { rank, score }),
        row: Some(row),
        ..Candidate::new(chunk_id)
    };
    Ok((1..).zip(found).map(candidate).collect())
}

/// Chunks that pass a filter, counted up to `most`.
pub fn count_matching(target: &Target, filter: &Filter, most: usize) -> Result<usize> {
    let mut arguments = Arguments::default();
    let (build_no, kb_no) =
        (arguments.add(Arg::Long(target.build_no)), arguments.add(Arg::Long(target.kb_no)));
    let condition = condition(filter, &mut arguments);
    let found = spi::read_one(
        &format!(
            "SELECT count(*) FROM (
                 SELECT FROM kb.documents d
                 JOIN kb.chunks c ON c.document_id = d.document_id AND c.build_no = {build_no}
                 WHERE d.kb_no = {kb_no} AND {condition} LIMIT {most}) t"
        ),
        &arguments.all(),
        |row| row.get::<i64>(0),
    )?;
    Ok(found.unwrap_or(0) as usize)
}

/// Where a text appears.
#[derive(Debug, Clone, PartialEq)]
pub struct TextPlace {
    pub content_hash: Vec<u8>,
    pub chunk_id: Uuid,
    pub external_id: String,
    /// As [`ChunkRow::source`].
    pub source: Option<(i64, String)>,
}

/// Where these texts appear, by external id and ordinal.
pub fn places(target: &Target, hashes: &[Vec<u8>]) -> Result<Vec<TextPlace>> {
    spi::read(
        "SELECT c.content_hash, c.chunk_id, d.external_id, d.source_no, d.tenant_id FROM kb.chunks c
         JOIN kb.documents d ON d.document_id = c.document_id
         WHERE c.build_no = $1 AND c.content_hash = ANY ($2) AND c.enabled
         ORDER BY d.external_id, c.ordinal",
        &[Arg::Long(target.build_no), Arg::BytesArray(hashes)],
        |row| {
            Ok(TextPlace {
                content_hash: row.get(0)?,
                chunk_id: row.uuid(1)?,
                external_id: row.get(2)?,
                source: source(row, 3)?,
            })
        },
    )
}
