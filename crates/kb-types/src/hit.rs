//! A row of an answer.

use super::candidate::ChunkRow;
use uuid::Uuid;

#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    pub kb_id: String,
    pub chunk_id: Uuid,
    /// Similarity; larger is nearer. None where no vectors were compared.
    pub score: Option<f64>,
    /// As [`super::Candidate::word_share`].
    pub word_share: Option<f64>,
    /// What the rows are ordered by.
    pub rank_score: Option<f64>,
    pub row: ChunkRow,
}
