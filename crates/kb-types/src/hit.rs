//! A row of an answer.

use super::candidate::ChunkRow;
use uuid::Uuid;

#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    pub kb_id: String,
    pub chunk_id: Uuid,
    /// The similarity, which is larger for nearer vectors. None where no vectors were compared.
    pub score: Option<f64>,
    /// As [`super::Candidate::word_share`].
    pub word_share: Option<f64>,
    /// The score that orders the rows.
    pub rank_score: Option<f64>,
    pub row: ChunkRow,
}
