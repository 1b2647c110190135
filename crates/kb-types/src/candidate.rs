//! A chunk on its way into an answer, through all stages of retrieval.

use super::json::Json;
use serde_json::Value;
use uuid::Uuid;

#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    pub chunk_id: Uuid,
    /// Among the nearest vectors; the score is the similarity.
    pub dense: Option<Found>,
    /// Among the chunks that hold words of the question; the score is that of BM25.
    pub keyword: Option<Found>,
    /// The part that `keyword` is of the greatest score by words that any text could have, 0 to 1: scores of knowledge bases
    /// with other texts differ, this part can be compared.
    pub word_share: Option<f64>,
    /// The similarity of a chunk that is not among the nearest vectors, where it was asked for.
    pub similarity: Option<f64>,
    /// Among what a reranker has read.
    pub reranked: Option<Found>,
    /// What the candidates are ordered by, once the sources are fused.
    pub rank_score: Option<f64>,
    /// None until it is read, as the caller, who may not see it.
    pub head: Option<ChunkHead>,
    /// What an answer says of it: read only of what is in the answer, or where a stage needs its text.
    pub row: Option<ChunkRow>,
}

/// What the stages before the answer need to know of a chunk and its document.
#[derive(Debug, Clone, PartialEq)]
pub struct ChunkHead {
    pub external_id: String,
    pub document_id: i64,
    pub content_hash: Vec<u8>,
    pub token_count: i32,
    /// Where the document is a row of an attached table.
    pub source: Option<RowSource>,
    /// That row has been changed since.
    pub is_changed: bool,
}

/// Where one source has a chunk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    /// From 1.
    pub rank: usize,
    /// Larger is better.
    pub score: f64,
}

/// What an answer says of a chunk and its document.
#[derive(Debug, Clone, PartialEq)]
pub struct ChunkRow {
    pub external_id: String,
    pub title: Option<String>,
    pub content: String,
    pub token_count: i32,
    pub metadata: Json,
    pub locator: Value,
    /// The document has been edited since this chunk was made.
    pub stale: bool,
    pub content_hash: Vec<u8>,
    pub place: ChunkPlace,
    /// As [`ChunkHead::source`].
    pub source: Option<RowSource>,
}

/// What a document is of that is a row of an attached table.
#[derive(Debug, Clone, PartialEq)]
pub struct RowSource {
    pub source_no: i64,
    pub kb_no: i64,
    /// The document's.
    pub tenant_id: String,
}

/// Where a chunk is in its document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkPlace {
    pub document_id: i64,
    pub ordinal: i32,
    /// Characters from the document's first, the end exclusive.
    pub start: i32,
    pub end: i32,
}

impl Candidate {
    pub fn new(chunk_id: Uuid) -> Candidate {
        Candidate {
            chunk_id,
            dense: None,
            keyword: None,
            word_share: None,
            similarity: None,
            reranked: None,
            rank_score: None,
            head: None,
            row: None,
        }
    }

    /// The similarity, where vectors were compared.
    pub fn score(&self) -> Option<f64> {
        self.dense.map(|found| found.score).or(self.similarity)
    }
}
