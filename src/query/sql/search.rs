//! What a query reads besides vectors: the knowledge base, the rows of chunks, and phrases.

use crate::filters::filter::condition;
use crate::pg::index_lookup::{self, Key};
use crate::pg::role::bypasses_policies;
use crate::pg::setting;
use crate::pg::spi::{self, Arg, FromRow, Row};
use crate::pg::statement_arguments::Arguments;
use crate::sql::{BY_INDEX, BY_INDEX_UNPLANNED};
use crate::tenants::{Meant, shares};
use crate::vectors::VectorDb;
use kb_types::candidate::{ChunkHead, ChunkPlace, ChunkRow, SourceRow};
use kb_types::error::{Error, ObjectKind, Result};
use kb_types::retrieval::EfSearch;
use kb_types::{Candidate, Embedder, EmbedderConfig, Filter, Preprocess, Retrieval};
use std::collections::{HashMap, HashSet};
use uuid::Uuid;

/// Everything that a query must know of a knowledge base, read by one statement.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchTarget {
    pub kb_no: i64,
    pub kb_id: String,
    pub build_no: i64,
    pub retrieval: Retrieval,
    pub preprocess: Preprocess,
    pub embedder: Embedder,
    pub vector_db: VectorDb,
    /// Whether the vectors can be read, which is false after a restore that left out the rights, until the
    /// worker has granted them.
    pub is_readable: bool,
    /// The ef_search that kb.measure_recall has found to suffice, for ef_search auto.
    pub measured_ef_search: Option<usize>,
    /// The tokeniser that its chunking names. None: the embedder's own.
    pub tokenizer: Option<String>,
    /// Whether, with ef_search auto, the index was found to miss too much at every ef_search.
    pub index_misses: bool,
}

impl SearchTarget {
    /// The number of HNSW candidates to examine, if a setting or a measurement specifies it.
    pub fn ef_search(&self) -> Option<usize> {
        match self.retrieval.ef_search {
            Some(EfSearch::Fixed(ef_search)) => Some(ef_search),
            Some(EfSearch::Auto(_)) => self.measured_ef_search,
            None => None,
        }
    }
}

/// The knowledge base that the caller means, with its live build.
pub fn target(kb_id: &str) -> Result<SearchTarget> {
    let internal = |p: Vec<String>| Error::Internal(format!("stored settings: {}", p.join("; ")));
    let meant = Meant::of_session()?;
    spi::read_one(
        &format!(
            "SELECT k.kb_no, b.build_no, k.retrieval, b.preprocess, e.id AS embedder, e.provider, e.model,
                    e.dimension AS embedder_dimension, e.base_url, e.config AS embedder_config, {}, {} AS is_readable,
                    b.ef_search, b.chunking ->> 'tokenizer' AS tokenizer, b.index_misses
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
            let retrieval: Retrieval = row.get("retrieval")?;
            let is_auto = matches!(retrieval.ef_search, Some(EfSearch::Auto(_)));
            Ok(SearchTarget {
                kb_no: row.get("kb_no")?,
                kb_id: kb_id.to_string(),
                build_no: row.get("build_no")?,
                retrieval,
                preprocess: row.get("preprocess")?,
                embedder: Embedder {
                    id: row.get("embedder")?,
                    provider: row.get("provider")?,
                    model: row.get("model")?,
                    dimension: row.get("embedder_dimension")?,
                    base_url: row.get("base_url")?,
                    config: EmbedderConfig::parse(&row.get("embedder_config")?).map_err(internal)?,
                },
                vector_db: VectorDb::from_row(row)?,
                is_readable: row.get::<Option<bool>>("is_readable")? != Some(false),
                measured_ef_search: row.get::<Option<i64>>("ef_search")?.map(|ef_search| ef_search as usize),
                tokenizer: row.get("tokenizer")?,
                index_misses: is_auto && row.get("index_misses")?,
            })
        },
    )?
    .ok_or_else(|| Error::NotFound { what: ObjectKind::KnowledgeBase, id: kb_id.into() })
}

/// The columns that [`chunk_row`] reads, and the chunk's id.
const COLUMNS: &str = "c.chunk_id, d.external_id, d.title, c.content, c.token_count,
    CASE WHEN c.metadata = '{}' THEN d.metadata ELSE d.metadata || c.metadata END AS metadata, c.locator,
    d.content_hash IS DISTINCT FROM d.indexed_hash OR d.source_no IS NOT NULL AND d.status = 'failed' AS stale,
    c.content_hash, d.source_no, d.kb_no, d.tenant_id, d.document_id, c.ordinal, c.start_char, c.end_char";

/// The source of a row of an attached table.
fn source(row: &Row) -> Result<Option<SourceRow>> {
    let Some(source_no) = row.get("source_no")? else { return Ok(None) };
    Ok(Some(SourceRow { source_no, kb_no: row.get("kb_no")?, tenant_id: row.get("tenant_id")? }))
}

fn chunk_row(row: &Row) -> Result<ChunkRow> {
    Ok(ChunkRow {
        external_id: row.get("external_id")?,
        title: row.get("title")?,
        content: row.get("content")?,
        token_count: row.get("token_count")?,
        metadata: row.get("metadata")?,
        locator: row.get("locator")?,
        stale: row.get("stale")?,
        content_hash: row.get("content_hash")?,
        source: source(row)?,
        place: ChunkPlace {
            document_id: row.get("document_id")?,
            ordinal: row.get("ordinal")?,
            start: row.get("start_char")?,
            end: row.get("end_char")?,
        },
    })
}

/// The part of a chunk that is searched for phrases. A tsvector has at most a megabyte; what the parser makes
/// of words with hyphens is twice as long as they are, and the positions add to that.
const LOOKED_THROUGH: &str = "pg_catalog.left(c.content,
    CASE WHEN pg_catalog.octet_length(pg_catalog.left(c.content, 200000)) > 250000 THEN 60000 ELSE 200000 END)";

/// The condition on the rows of an answer.
#[derive(Debug, Clone, Copy, Default)]
pub struct CandidateCondition<'a> {
    pub filter: Option<&'a Filter>,
    /// Phrases whose words must follow each other in [`LOOKED_THROUGH`], in the words of the chunk's language
    /// and the form of kb._in_words.
    pub phrases: &'a [String],
    /// Phrases that must not be in it.
    pub excluded_phrases: &'a [String],
}

/// Those candidates that the caller may read, with their heads, in their order. The statement runs as the
/// caller, so every policy on chunks and documents applies.
pub fn heads(target: &SearchTarget, candidates: Vec<Candidate>) -> Result<Vec<Candidate>> {
    heads_where(target, candidates, &CandidateCondition::default())
}

/// Does the same for candidates whose rows satisfy the condition.
pub fn heads_where(
    target: &SearchTarget,
    candidates: Vec<Candidate>,
    is: &CandidateCondition,
) -> Result<Vec<Candidate>> {
    if candidates.is_empty() {
        return Ok(candidates);
    }
    let ids: Vec<Uuid> = candidates.iter().map(|candidate| candidate.chunk_id).collect();
    let mut arguments = Arguments::default();
    let (build_no, ids) = (arguments.add(Arg::Long(target.build_no)), arguments.add(Arg::Uuids(&ids)));
    let mut conditions = String::new();
    if let Some(filter) = is.filter {
        conditions += &format!(" AND {}", condition(filter, &mut arguments));
    }
    let phrases = is.phrases.iter().map(|phrase| (phrase, ""));
    let phrases: Vec<String> = phrases
        .chain(is.excluded_phrases.iter().map(|phrase| (phrase, "!! ")))
        .map(|(phrase, not)| {
            let language = arguments.add(Arg::Text(&target.preprocess.language));
            let phrase = arguments.add(Arg::Text(phrase));
            format!("{not}pg_catalog.phraseto_tsquery({language}::regconfig, {phrase})")
        })
        .collect();
    if !phrases.is_empty() {
        let language = arguments.add(Arg::Text(&target.preprocess.language));
        // The words of a chunk are found once, and the phrases once for all chunks.
        conditions += &format!(
            " AND pg_catalog.to_tsvector({language}::regconfig,
                      kb._in_words(coalesce(c.context || E'\\n\\n', '') || {LOOKED_THROUGH}))
                  @@ (SELECT {})",
            phrases.join(" && ")
        );
    }
    let sql = format!(
        "SELECT c.chunk_id, d.external_id, d.document_id, c.content_hash, c.token_count, d.source_no, d.kb_no, d.tenant_id
         FROM kb.chunks c JOIN kb.documents d ON d.document_id = c.document_id
         WHERE c.build_no = {build_no} AND c.chunk_id = ANY ({ids}) AND c.enabled{conditions}"
    );
    let head = |row: &Row| {
        let head = ChunkHead {
            external_id: row.get("external_id")?,
            document_id: row.get("document_id")?,
            content_hash: row.get("content_hash")?,
            token_count: row.get("token_count")?,
            source: source(row)?,
            is_changed: false,
        };
        Ok((row.get("chunk_id")?, head))
    };
    let found = setting::with(BY_INDEX_UNPLANNED, || spi::read(&sql, &arguments.all(), head))?;
    let mut found: HashMap<Uuid, ChunkHead> = found.into_iter().collect();
    let with_head = |candidate: Candidate| {
        let head = found.remove(&candidate.chunk_id)?;
        Some(Candidate { head: Some(head), ..candidate })
    };
    Ok(candidates.into_iter().filter_map(with_head).collect())
}

/// Reads the rows of candidates that have their heads, with their texts. Returns the number of rows that were
/// read. Runs as the caller, like [`heads`].
pub fn add_rows(target: &SearchTarget, candidates: &mut [Candidate]) -> Result<usize> {
    let unread: Vec<Uuid> = candidates.iter().filter(|c| c.row.is_none()).map(|c| c.chunk_id).collect();
    if unread.is_empty() {
        return Ok(0);
    }
    let sql = format!(
        "SELECT {COLUMNS} FROM kb.chunks c JOIN kb.documents d ON d.document_id = c.document_id
         WHERE c.build_no = $1 AND c.chunk_id = ANY ($2) AND c.enabled"
    );
    let arguments = [Arg::Long(target.build_no), Arg::Uuids(&unread)];
    let row = |row: &Row| Ok((row.get("chunk_id")?, chunk_row(row)?));
    let found = setting::with(BY_INDEX_UNPLANNED, || spi::read(&sql, &arguments, row))?;
    let count = found.len();
    let mut found: HashMap<Uuid, ChunkRow> = found.into_iter().collect();
    for candidate in candidates.iter_mut().filter(|candidate| candidate.row.is_none()) {
        candidate.row = found.remove(&candidate.chunk_id);
        if let (Some(row), Some(head)) = (&mut candidate.row, &candidate.head) {
            row.stale |= head.is_changed;
        }
    }
    Ok(count)
}

/// A place where a text appears.
#[derive(Debug, Clone, PartialEq)]
pub struct TextPlace {
    pub content_hash: Vec<u8>,
    pub chunk_id: Uuid,
    pub external_id: String,
    /// See [`ChunkRow::source`].
    pub source: Option<SourceRow>,
}

/// The most places that are listed for a text.
const PLACES: i64 = 1000;

/// The places of those of these texts that several chunks have, at most [`PLACES`] of each, by external id
/// and ordinal.
pub fn places(target: &SearchTarget, hashes: &[Vec<u8>]) -> Result<Vec<TextPlace>> {
    let build = Key::Long(target.build_no);
    let tenants = match bypasses_policies() {
        true => None,
        false => Some(shares::readable(target.kb_no)?),
    };
    let is_repeated = |hash: &&Vec<u8>| {
        let key = [build, Key::Bytes(hash)];
        let chunks = index_lookup::count_of(tenants.as_deref(), c"chunks", c"chunks_content", &key, 2);
        chunks.is_none_or(|chunks| chunks > 1)
    };
    let hashes: Vec<Vec<u8>> = hashes.iter().filter(is_repeated).cloned().collect();
    // Nearly always each text exists once.
    if hashes.is_empty() {
        return Ok(Vec::new());
    }
    let sql = "SELECT c.content_hash, c.chunk_id, d.external_id, d.source_no, d.kb_no, d.tenant_id
         FROM pg_catalog.unnest($2::bytea[]) AS u (content_hash)
         CROSS JOIN LATERAL (
             SELECT c.content_hash, c.chunk_id, c.document_id, c.ordinal FROM kb.chunks c
             WHERE c.build_no = $1 AND c.content_hash = u.content_hash AND c.enabled LIMIT $3) c
         JOIN kb.documents d ON d.document_id = c.document_id
         ORDER BY d.external_id, c.ordinal";
    let place = |row: &Row| {
        Ok(TextPlace {
            content_hash: row.get("content_hash")?,
            chunk_id: row.get("chunk_id")?,
            external_id: row.get("external_id")?,
            source: source(row)?,
        })
    };
    let arguments = [Arg::Long(target.build_no), Arg::BytesArray(&hashes), Arg::Long(PLACES)];
    setting::with(BY_INDEX_UNPLANNED, || spi::read(sql, &arguments, place))
}

/// Chunks of any live build: the condition that [`by_ids`] and [`size_of`] share.
const LIVE_BY_ID: &str = "FROM pg_catalog.unnest($1::uuid[]) WITH ORDINALITY u (chunk_id, place)
     JOIN kb.builds b ON b.state = 'live'
     JOIN kb.chunks c ON c.build_no = b.build_no AND c.chunk_id = u.chunk_id AND c.enabled
     JOIN kb.documents d ON d.document_id = c.document_id";

/// The number of bytes of the texts of chunks that the caller may read.
pub fn size_of(chunk_ids: &[Uuid]) -> Result<i64> {
    let sql = format!(
        "SELECT coalesce(pg_catalog.sum(pg_catalog.octet_length(c.content)), 0)::bigint {LIVE_BY_ID}"
    );
    let found = setting::with(BY_INDEX, || spi::read_one(&sql, &[Arg::Uuids(chunk_ids)], Row::only))?;
    Ok(found.unwrap_or(0))
}

/// The chunks with these ids that the caller may read, each once, in the order in which they are first named.
pub fn by_ids(chunk_ids: &[Uuid]) -> Result<Vec<Candidate>> {
    let sql = format!("SELECT {COLUMNS} {LIVE_BY_ID} ORDER BY u.place, c.build_no");
    let found = setting::with(BY_INDEX, || {
        spi::read(&sql, &[Arg::Uuids(chunk_ids)], |row| Ok((row.get("chunk_id")?, chunk_row(row)?)))
    })?;
    let mut seen = HashSet::new();
    let candidate = |(chunk_id, row)| {
        seen.insert(chunk_id).then_some(Candidate { row: Some(row), ..Candidate::new(chunk_id) })
    };
    Ok(found.into_iter().filter_map(candidate).collect())
}
