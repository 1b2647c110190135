//! A candidate: a chunk that retrieval considers for an answer, as it passes through the stages.

use super::json::Json;
use serde_json::Value;
use uuid::Uuid;

#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    pub chunk_id: Uuid,
    /// Its place among the nearest vectors. The score is the similarity.
    pub dense: Option<Found>,
    /// Its place among the chunks that contain words of the question. The score is that of BM25.
    pub keyword: Option<Found>,
    /// The score by words as a fraction, from 0 to 1, of the greatest score that any text could have for the
    /// question. Unlike the score itself it can be compared between knowledge bases.
    pub word_share: Option<f64>,
    /// The similarity of a chunk that is not among the nearest vectors, where the request asks for it.
    pub similarity: Option<f64>,
    /// Its place in the order that a reranker gave.
    pub reranked: Option<Found>,
    /// The score that orders the candidates after fusion.
    pub rank_score: Option<f64>,
    /// None until it has been read with the caller's privileges, which may not allow it.
    pub head: Option<ChunkHead>,
    /// What the answer shows. It is read only for rows of the answer, or where a stage needs the text.
    pub row: Option<ChunkRow>,
}

/// What the stages of retrieval need to know about a chunk and its document.
#[derive(Debug, Clone, PartialEq)]
pub struct ChunkHead {
    pub external_id: String,
    pub document_id: i64,
    pub content_hash: Vec<u8>,
    pub token_count: i32,
    /// The row of an attached table that the document comes from, if it comes from one.
    pub source: Option<SourceRow>,
    /// Whether that row has changed since the chunk was made.
    pub is_changed: bool,
}

/// The place that one source of candidates gives a chunk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    /// From 1.
    pub rank: usize,
    /// Larger is better.
    pub score: f64,
}

/// What an answer shows about a chunk and its document.
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
    pub source: Option<SourceRow>,
}

/// Identifies the row of an attached table that a document was made from.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceRow {
    pub source_no: i64,
    pub kb_no: i64,
    /// The document's.
    pub tenant_id: String,
}

/// The position of a chunk in its document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkPlace {
    pub document_id: i64,
    pub ordinal: i32,
    /// Counted in characters from the start of the document; the end is exclusive.
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
